"""Random blocks, and models that have them."""

from __future__ import annotations

from collections.abc import Iterator

import gguf
import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from torch import nn

from specdec_runtime.gguf.blocks import numbers_of
from specdec_runtime.interfaces import BlockEmbedding, BlockLinear
from specdec_runtime.interfaces.blocks import KINDS, BlockNumbers, Bytes, pack

GGUF_KINDS = tuple(kind for kind in KINDS if kind in GGMLQuantizationType.__members__)
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


def random_weights(kind: str, num_rows: int, depth: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tiles of random blocks of any kind, and what they are by another hand: the `gguf` package's, or plain numpy."""
    if kind in GGUF_KINDS:
        blocks = random_blocks(kind, num_rows, depth, seed)
        return torch.from_numpy(pack(numbers_of(blocks, kind), KINDS[kind])), dequantised(blocks, kind)
    rng, what, most = np.random.default_rng(seed), KINDS[kind], 1 << KINDS[kind].bits
    codes = rng.integers(0, most, (num_rows, depth), dtype=np.uint8)
    zeros = rng.integers(0, most, (num_rows, depth // what.size)).astype(np.float16)
    scales = (rng.standard_normal(zeros.shape) * (2.0 / depth**0.5 / most)).astype(np.float16)
    wide = (np.repeat(part.astype(np.float64), what.size, 1) for part in (zeros, scales))
    weights = (codes - next(wide)) * next(wide)
    packed = pack(BlockNumbers(codes, scales, -zeros, None, None), what)
    return torch.from_numpy(packed), torch.from_numpy(weights.astype(np.float32))


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
        packed, weights = random_weights(kind, *module.weight.shape, seed)
        module.weight.data = weights.to(module.weight.dtype)
        made: BlockLinear | BlockEmbedding
        if isinstance(module, nn.Linear):
            made = BlockLinear(kind, module.out_features, module.in_features, module.bias is not None)
            made.bias = module.bias
        else:
            made = BlockEmbedding(kind, *module.weight.shape, module.weight.dtype)
        made.weight.data = packed
        seed += 1
        yield name, made
