"""Resolves the name of a model: the only module that looks up named models and GGUF files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specdec import registry
from specdec.config.checkpoint import Checkpoint
from specdec.config.file_kind import is_gguf, kind_of
from specdec.config.hub import HUB_ID
from specdec.config.missing import check_installed
from specdec.config.zoo import PACKAGED, ZOO, packaged_model, zoo_path
from specdec.errors import ConfigError, ModelError, PluginError

if TYPE_CHECKING:
    from specdec.engine_options import EngineOptions
    from specdec.interfaces.model_files import ModelFiles


def resolve_name(
    name: str,
    *,
    revision: str | None = None,
    gguf_file: str | None = None,
    dtype: object = "auto",
    keeps_blocks: bool = False,
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
        keeps_blocks: see `ModelFiles.stored`.

    Raises:
        ConfigError: for a name that matches no file or several files.
        PluginError: for a GGUF file if what reads it is not installed.
        ModelError: for a GGUF file that cannot be read or stored.
    """
    if name in (ZOO, *PACKAGED):
        if gguf_file is not None:
            raise ConfigError(f"LLM: gguf_file={gguf_file!r} does nothing with model={name!r}: leave it out")
        if name == ZOO:
            return zoo_path("target")
        return str(_gguf(name).stored(packaged_model(name), dtype, keeps_blocks=keeps_blocks))
    if gguf_file is None and not _may_be_gguf(name):
        return name
    files = _gguf(name)
    found = files.local(name, gguf_file) or files.on_hub(name, revision, gguf_file)
    return name if found is None else str(files.stored(found, dtype, keeps_blocks=keeps_blocks))


def locate(options: EngineOptions) -> EngineOptions:
    """Return the options with a model name replaced by a directory or hub id; see `resolve_name`.

    Raises:
        ConfigError: if the name cannot be resolved.
        ModelError: if a GGUF file cannot be read, or its conversion cannot be stored.
    """
    name = options.model
    if not isinstance(name, str | Path):
        if options.gguf_file is not None:
            raise ConfigError(
                f"LLM: gguf_file={options.gguf_file!r} does nothing with a loaded model: leave it out"
            )
        return options
    found = resolve_name(
        str(name),
        revision=options.revision,
        gguf_file=options.gguf_file,
        dtype=options.dtype,
        keeps_blocks=options.keeps_blocks,
    )
    return replace(options, model=found, gguf_file=None)


def local_gguf(name: str) -> Path | None:
    """Return the GGUF file that a path names; None for any other name. See `ModelFiles.local`."""
    return _gguf(name).local(name) if _may_be_gguf(name) else None


def check_name(name: str, option: str, speculation: object = None) -> None:
    """Raise if a name does not exist, before anything slow is imported, downloaded or dequantised.

    Args:
        name: as for `resolve_name`.
        option: name of the option, for the error message.
        speculation: a `speculative_config`, so that all packages that are missing are told at once.

    Raises:
        ConfigError: naming what does not exist.
        ModelError: for a damaged GGUF file.
    """
    check_installed(name, speculation)
    if name in PACKAGED:
        packaged_model(name)
    elif name == ZOO or local_gguf(name) is not None or name.endswith(".gguf"):
        return
    elif (checkpoint := Checkpoint(name)).leads_nowhere:
        raise ConfigError(f"{option}: {checkpoint.problem}")


def _may_be_gguf(name: str) -> bool:
    """Return whether a name may lead to a GGUF file; all others are resolved without what reads them."""
    path = Path(os.path.expanduser(name))
    if os.path.isdir(path):
        return any(path.glob("*.gguf")) and not any(path.glob("*.safetensors"))
    if os.path.isfile(path):
        if path.suffix == ".gguf" and not is_gguf(path):
            raise ModelError(
                f"{path} is not a GGUF file, or is damaged: it is {kind_of(path)}; fetch it again"
            )
        return is_gguf(path)
    return name.endswith(".gguf") or ("gguf" in name.lower() and HUB_ID.fullmatch(name) is not None)


def _gguf(name: str) -> ModelFiles:
    from specdec.interfaces.model_files import ModelFiles  # imports torch

    try:
        return registry.part("gguf", ModelFiles)()
    except PluginError as error:
        raise PluginError(f"model {name!r} is read as a GGUF file: {error}") from None
