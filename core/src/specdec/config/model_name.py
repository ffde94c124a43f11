"""Resolves the name of a model: the only module that looks up named models, GGUF files and their cache."""

from __future__ import annotations

from specdec.config.checkpoint import Checkpoint
from specdec.config.gguf_name import hub_gguf, local_gguf
from specdec.config.zoo import PACKAGED, ZOO, packaged_model, zoo_path
from specdec.errors import ConfigError

_STORED = {
    "auto": "bfloat16", "bfloat16": "bfloat16", "float16": "float16", "half": "float16",
    "float32": "float32", "float": "float32", "float64": "float32", "double": "float32",
}  # fmt: skip
"""The dtype a GGUF file is dequantised to, by the `dtype` of the run."""


def resolve_name(
    name: str, *, revision: str | None = None, gguf_file: str | None = None, dtype: object = "auto"
) -> str:
    """Return the directory or hub id of a model.

    `zoo` and `smollm2` are models of `specdec-zoo`. A GGUF file (or a folder or hub repository with one) is dequantised
    once and kept; the result is a directory with `config.json`, safetensors and tokenizer. Every other name is returned
    unchanged, including a result of this function.

    Args:
        name: a directory, a file, a hub id, `zoo` or `smollm2`.
        revision: revision on the hub.
        gguf_file: the GGUF file to use in a folder or repository.
        dtype: dtype of the run, which decides what a GGUF file is dequantised to; `auto` means bfloat16.

    Raises:
        ConfigError: for a name that matches no file or several files, or a package that is missing.
        ModelError: for a GGUF file that cannot be read or stored.
    """
    if name in (ZOO, *PACKAGED):
        if gguf_file is not None:
            raise ConfigError(f"LLM: gguf_file={gguf_file!r} does nothing with model={name!r}: leave it out")
        if name == ZOO:
            return zoo_path("target")
        file = packaged_model(name)
    else:
        found = local_gguf(name, gguf_file) or hub_gguf(name, revision, gguf_file)
        if found is None:
            return name
        file = found
    from specdec.gguf.store import stored

    return str(stored(file, stored_dtype(dtype)))


def check_name(name: str, option: str) -> None:
    """Raise if a name does not exist, before anything slow is imported, downloaded or dequantised.

    Args:
        name: as for `resolve_name`.
        option: name of the option, for the error message.

    Raises:
        ConfigError: naming what does not exist.
        ModelError: for a damaged GGUF file.
    """
    if name in PACKAGED:
        packaged_model(name)
    elif name == ZOO or local_gguf(name) is not None or name.endswith(".gguf"):
        return
    elif (checkpoint := Checkpoint(name)).leads_nowhere:
        raise ConfigError(f"{option}: {checkpoint.problem}")


def stored_dtype(dtype: object) -> str:
    """Return the dtype a GGUF file is dequantised to for a run in `dtype`, which is a name or a `torch.dtype`.

    Raises:
        ConfigError: if there is no such dtype.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in _STORED:
        raise ConfigError(f"LLM: dtype={dtype!r} is not one of {', '.join(_STORED)}")
    return _STORED[name]
