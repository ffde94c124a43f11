"""Reads a GGUF file through transformers and writes it as a transformers checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from specdec import ModelError
from specdec_runtime.gguf.bounds import check_bounds
from specdec_runtime.gguf.reader import read_once
from specdec_runtime.models.unfilled import unfilled

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_END_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
"""End of text, and end of a conversation turn if that is a different token."""


def convert(file: Path, dtype: str, folder: Path, *, keeps_blocks: bool = False) -> None:
    """Write the model of a GGUF file into a folder: safetensors, configuration, tokenizer and chat template.

    Args:
        file: the GGUF file.
        dtype: dtype of the weights: `bfloat16`, `float16` or `float32`.
        folder: an empty folder.
        keeps_blocks: whether weights stay in blocks, see `keep_blocks`.

    Raises:
        ModelError: if the file says more than it can hold, or if transformers cannot read it, with its
            reason.
        OSError: if the folder cannot be written.
    """
    check_bounds(file)
    with _quiet_in_a_pipe(), read_once(), TemporaryDirectory() as alone:
        Path(alone, file.name).symlink_to(file.absolute())  # transformers also reads what lies beside a file
        try:
            model, tokenizer = _read(file, dtype, alone, keeps_blocks=keeps_blocks)
        except (ModelError, MemoryError):
            raise
        except Exception as error:  # a broken file may raise anything
            reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
            raise ModelError(f"transformers cannot read {file}: {reason}") from error
        _write(model, tokenizer, folder)


def _read(
    file: Path, dtype: str, folder: str, *, keeps_blocks: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from gguf import GGUFReader
    from transformers import AutoTokenizer

    from specdec_runtime.gguf.kept_blocks import can_mark, keep_blocks, marked_rows
    from specdec_runtime.gguf.positions import set_position_scaling
    from specdec_runtime.gguf.splitting import set_splitting

    reader = GGUFReader(str(Path(folder, file.name)))  # transformers' words for it, and so its reader
    is_kept = False
    if keeps_blocks and can_mark(reader.tensors):
        with marked_rows():
            model = _load(file, dtype, folder)
            is_kept = keep_blocks(model, file, reader.tensors, is_marked=True)
    if not is_kept:
        model = _load(file, dtype, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file.name)
    fields = {
        name: field.contents()
        for name, field in reader.fields.items()
        if len(field.data) == 1  # no vocabularies
    }
    _set_end(model, fields)
    set_position_scaling(model.config, file, fields, {tensor.name: tensor.data for tensor in reader.tensors})
    set_splitting(tokenizer, file, fields)
    if keeps_blocks and not is_kept:
        keep_blocks(model, file, reader.tensors, is_marked=False)
    return model, tokenizer


def _load(file: Path, dtype: str, folder: str) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=file.name,
        dtype=getattr(torch, dtype),
        quantization_config=GgufConfig(dequantize=True),
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    model: PreTrainedModel = loaded[0]
    if (complaint := unfilled(loaded[1], model)) is not None:
        raise ModelError(f"{file}: {complaint}")
    return model


def _set_end(model: PreTrainedModel, fields: Mapping[str, Any]) -> None:
    """Set the end-of-text ids to exactly those of the file."""
    eos_token_id = model.config.eos_token_id if _END_KEYS[0] in fields else None
    ends = (
        list(eos_token_id)
        if isinstance(eos_token_id, list | tuple)
        else []
        if eos_token_id is None
        else [eos_token_id]
    )
    ends += [fields[key] for key in _END_KEYS if key in fields]
    ids = list(dict.fromkeys(int(end) for end in ends))
    model.config.eos_token_id = None if not ids else ids[0] if len(ids) == 1 else ids
    if model.generation_config is not None:
        model.generation_config.eos_token_id = model.config.eos_token_id


def _write(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    from safetensors import SafetensorError

    try:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except SafetensorError as error:  # raised for a full disk
        raise OSError(str(error)) from error


@contextmanager
def _quiet_in_a_pipe() -> Iterator[None]:
    """Show transformers' progress bars only on a terminal; what is logged meanwhile is shown anywhere."""
    from transformers import modeling_gguf_pytorch_utils

    from specdec_runtime.gguf.without_bars import without_bars

    if sys.stderr.isatty():
        yield
        return
    reading: Any = modeling_gguf_pytorch_utils  # draws a bar that their setting does not disable
    bar = reading.tqdm
    reading.tqdm = partial(bar, disable=True)
    try:
        with without_bars():
            yield
    finally:
        reading.tqdm = bar
