"""The part of specdec that this package is."""

from __future__ import annotations

from pathlib import Path

import torch

from specdec import ConfigError
from specdec.interfaces import ModelFiles
from specdec_runtime.gguf.names import hub_gguf, local_gguf
from specdec_runtime.gguf.store import stored

_STORED = {
    "auto": "bfloat16", "bfloat16": "bfloat16", "float16": "float16", "half": "float16",
    "float32": "float32", "float": "float32", "float64": "float32", "double": "float32",
}  # fmt: skip
"""The dtype a GGUF file is dequantised to, by the `dtype` of the run."""


class GgufFiles(ModelFiles):
    """Finds GGUF files and stores them as safetensors."""

    name = "gguf"

    def local(self, name: str, file: str | None = None) -> Path | None:
        """Return the GGUF file that a path names; None for any other name."""
        return local_gguf(name, file)

    def on_hub(self, name: str, revision: str | None = None, file: str | None = None) -> Path | None:
        """Return the GGUF file of a hub repository, downloaded unless it is cached; None for any other name."""
        return hub_gguf(name, revision, file)

    def stored(self, file: Path, dtype: object, *, keeps_blocks: bool = False) -> Path:
        """Return a directory with the model of a GGUF file as safetensors; made once and kept."""
        if keeps_blocks:
            from specdec_runtime.backends import reads_blocks

            keeps_blocks = reads_blocks(torch.device("cpu"))
        return stored(file, stored_dtype(dtype), keeps_blocks=keeps_blocks)


def stored_dtype(dtype: object) -> str:
    """Return the dtype a GGUF file is dequantised to for a run in `dtype`, which is a name or a `torch.dtype`.

    Raises:
        ConfigError: if there is no such dtype.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in _STORED:
        raise ConfigError(f"LLM: dtype={dtype!r} is not one of {', '.join(_STORED)}")
    return _STORED[name]
