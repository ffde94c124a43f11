"""Finds the tensors of a GGUF file in a model that was made of it, and puts their blocks there."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
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


@contextmanager
def marked_rows() -> Iterator[None]:
    """Have `gguf.dequantize` say where a row comes from instead of what it holds, for blocks that are kept.

    A row is its number and its tensor's address in small integers, behind these others by chance, the same in each row, and NaN
    among them. So rows in another order are found again; what is calculated with, or has its columns in another order, is not;
    and what is copied elsewhere is told by its NaN.
    """
    published = gguf.dequantize
    gguf.dequantize = partial(_marks, published)
    try:
        yield
    finally:
        gguf.dequantize = published


def _marks(published: Any, data: npt.NDArray[Any], kind: Any) -> Any:
    if kind.name not in KINDS or data.ndim != 2:
        return published(data, kind)
    size, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    depth = data.shape[1] // num_bytes * size
    columns = np.random.default_rng(1).integers(0, 256, depth).astype(np.float32)
    columns[16::16] = np.nan
    marks = np.tile(columns, (len(data), 1))
    numbers = np.stack([np.arange(len(data)), np.full(len(data), data.ctypes.data)], 1)
    marks[:, :16] = numbers.view(np.uint8)
    return marks


def keep_blocks(model: PreTrainedModel, file: Path, tensors: Sequence[Any], *, is_marked: bool) -> bool:
    """Replace the dequantised weights of a model by the blocks that they were made of.

    What `transformers` does with a tensor is not asked: a weight is one of a tensor if it has the same rows, in whatever order.
    Where a linear map of a layer has no such tensor the model stays as it is, and a warning says so.

    Args:
        model: the model, whose modules are replaced.
        file: its file, for messages.
        tensors: of the reader of the file.
        is_marked: whether the model was made within `marked_rows`, as this call then is.

    Returns:
        Whether the model can be used: not if marks are left in it.
    """
    by_hash: dict[tuple[object, ...], tuple[Any, Hashes]] = {}
    for tensor in tensors:
        if tensor.tensor_type.name in KINDS and len(tensor.shape) == 2:
            at_once = len(tensor.data) if is_marked else _ROWS
            rows = np.concatenate([*_hashes(_dequantised(tensor, model.dtype, at_once))])
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
                if is_marked:
                    return False
                found = {each.tensor_type.name for each in tensors} - {"F64", "F32", "F16", "BF16"}
                if found:
                    logger.warning(
                        "%s: its weights are widened to %s, since products read none like those of %s (types: %s)",
                        file.name, str(model.dtype).removeprefix("torch."), name, ", ".join(sorted(found)),
                    )  # fmt: skip
                return True
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
    return not any(weight.isnan().any() for weight in model.parameters() if weight.is_floating_point())


def can_mark(tensors: Sequence[Any]) -> bool:
    """Return whether all matrices of a file may stay in blocks."""
    return all(tensor.tensor_type.name in KINDS for tensor in tensors if len(tensor.shape) == 2)


def _is_known(module: nn.Linear | nn.Embedding) -> bool:
    return type(module) in (nn.Linear, nn.Embedding) or hasattr(module, "scalar_embed_scale")


def _dequantised(tensor: Any, dtype: torch.dtype, at_once: int) -> Iterator[torch.Tensor]:
    for start in range(0, len(tensor.data), at_once):
        rows = gguf.dequantize(tensor.data[start : start + at_once], tensor.tensor_type)
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
