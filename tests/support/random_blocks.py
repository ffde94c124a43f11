"""Random blocks of GGUF kinds, and models that have them."""

from __future__ import annotations

from collections.abc import Iterator

import gguf
import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from torch import nn

from specdec_runtime.gguf.blocks import numbers_of
from specdec_runtime.interfaces import BlockEmbedding, BlockLinear
from specdec_runtime.interfaces.blocks import KINDS, Bytes, pack

HALVES = {"Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}
"""Where a block has its numbers of 16 bits, if not one at its beginning."""


def random_blocks(kind: str, num_rows: int, depth: int, seed: int = 0) -> Bytes:
    """Return blocks `[N, bytes]` of any codes and factors, with scales of a usual size."""
    rng, size = np.random.default_rng(seed), GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]
    blocks = rng.integers(0, 256, (num_rows, depth // KINDS[kind].size, size), dtype=np.uint8)
    most = (1 << KINDS[kind].bits) * (64 if KINDS[kind].num_groups else 1)
    for place in HALVES.get(kind, (0,)):
        numbers = rng.standard_normal(blocks.shape[:2]) * (2.0 / depth**0.5 / most)
        blocks[:, :, place : place + 2] = numbers.astype(np.float16)[..., None].view(np.uint8)
    return blocks.reshape(num_rows, -1)


def dequantised(blocks: Bytes, kind: str) -> torch.Tensor:
    """Return what the `gguf` package makes of blocks."""
    return torch.from_numpy(gguf.dequantize(blocks, GGMLQuantizationType[kind]))


def in_blocks(
    model: nn.Module, kinds: dict[str, str], seed: int = 0
) -> Iterator[tuple[str, BlockLinear | BlockEmbedding]]:
    """Yield modules with random blocks in place of those of a model, which gets the same weights, widened.

    Args:
        model: the model.
        kinds: kinds by the end of a module's name; the last one that fits counts.
        seed: of the numbers.
    """
    for name, module in list(model.named_modules()):
        kind = next((kind for end, kind in reversed(kinds.items()) if name.endswith(end)), None)
        if kind is None or not isinstance(module, nn.Linear | nn.Embedding):
            continue
        blocks = random_blocks(kind, *module.weight.shape, seed)
        packed = torch.from_numpy(pack(numbers_of(blocks, kind), KINDS[kind]))
        module.weight.data = dequantised(blocks, kind).to(module.weight.dtype)
        made: BlockLinear | BlockEmbedding
        if isinstance(module, nn.Linear):
            made = BlockLinear(kind, module.out_features, module.in_features, module.bias is not None)
            made.bias = module.bias
        else:
            made = BlockEmbedding(kind, *module.weight.shape, module.weight.dtype)
        made.weight.data = packed
        seed += 1
        yield name, made
