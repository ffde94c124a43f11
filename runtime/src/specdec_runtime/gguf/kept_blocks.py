"""Finds the tensors of a GGUF file in a model that was made of it, and puts their blocks there."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from transformers import PreTrainedModel

from specdec_runtime.gguf.blocks import numbers_of
from specdec_runtime.interfaces.blocks import KINDS, pack
from specdec_runtime.models.block_modules import BlockConfig, put_modules

logger = logging.getLogger("specdec")

Hashes = npt.NDArray[np.uint64]
_ROWS = 2048
"""Rows that are dequantised at a time."""


def keep_blocks(model: PreTrainedModel, file: Path, tensors: Sequence[Any]) -> None:
    """Replace the dequantised weights of a model by the blocks that they were made of.

    What `transformers` does with a tensor is not asked: a weight is one of a tensor if it has the same rows, in whatever order.
    Where a linear map of a layer has no such tensor the model stays as it is, and a warning says so.

    Args:
        model: the model, whose modules are replaced.
        file: its file, for messages.
        tensors: of the reader of the file.
    """
    by_hash: dict[tuple[object, ...], tuple[Any, Hashes]] = {}
    for tensor in tensors:
        if tensor.tensor_type.name in KINDS and len(tensor.shape) == 2:
            rows = np.concatenate([*_hashes(_dequantised(tensor, model.dtype))])
            by_hash[_key(rows, int(tensor.shape[0]))] = tensor, rows
    kinds, packed = {}, {}
    for name, module in model.named_modules(remove_duplicate=False):
        if not isinstance(module, nn.Linear | nn.Embedding):
            continue
        weight = module.weight.detach()
        rows = np.concatenate([*_hashes(weight.split(_ROWS))])
        tensor, theirs = by_hash.get(_key(rows, weight.shape[1]), (None, rows))
        if tensor is None or not _is_known(module):
            if isinstance(module, nn.Linear) and module is not model.get_output_embeddings():
                found = {each.tensor_type.name for each in tensors} - {"F64", "F32", "F16", "BF16"}
                if found:
                    logger.warning(
                        "%s: its weights are widened to %s, since products read none like those of %s (types: %s)",
                        file.name, str(model.dtype).removeprefix("torch."), name, ", ".join(sorted(found)),
                    )  # fmt: skip
                return
            continue
        kinds[name] = tensor.tensor_type.name
        order = np.empty(len(rows), np.int64)
        order[np.argsort(rows, kind="stable")] = np.argsort(theirs, kind="stable")
        packed[name] = tensor, order
    put_modules(model, kinds)
    laid_out: dict[tuple[object, bytes], nn.Parameter] = {}
    for name, (tensor, order) in packed.items():
        key = tensor.name, order.tobytes()
        if key not in laid_out:
            kind = tensor.tensor_type.name
            blocks = pack(numbers_of(np.asarray(tensor.data)[order], kind), KINDS[kind])
            laid_out[key] = nn.Parameter(torch.from_numpy(blocks), requires_grad=False)
        model.get_submodule(name).weight = laid_out[key]
    model.config.quantization_config = BlockConfig(kinds).to_dict()


def _is_known(module: nn.Linear | nn.Embedding) -> bool:
    return type(module) in (nn.Linear, nn.Embedding) or hasattr(module, "scalar_embed_scale")


def _dequantised(tensor: Any, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    for start in range(0, len(tensor.data), _ROWS):
        rows = gguf.dequantize(tensor.data[start : start + _ROWS], tensor.tensor_type)
        yield torch.from_numpy(rows).to(dtype)


def _hashes(parts: Iterator[torch.Tensor] | Sequence[torch.Tensor]) -> Iterator[Hashes]:
    """Yield a number for each row of weights, by its bits."""
    factors: Hashes = np.empty(0, np.uint64)
    for part in parts:
        bits = part.contiguous().view(torch.uint8).numpy()
        if bits.shape[1] % 8:
            bits = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))
        words = bits.view(np.uint64)
        if not len(factors):
            factors = np.random.default_rng(0).integers(1, 2**63, words.shape[1], np.uint64) * 2 + 1
        yield (words * factors).sum(1, dtype=np.uint64)


def _key(rows: Hashes, depth: int) -> tuple[object, ...]:
    return len(rows), depth, int(rows.sum(dtype=np.uint64))
