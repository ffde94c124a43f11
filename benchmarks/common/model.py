"""The model of a comparison: one folder, so all engines load the same weights."""

from __future__ import annotations

import json
from pathlib import Path

from specdec.config import TargetFacts, resolve_name, zoo_draft
from specdec.errors import ConfigError, ModelError

WORDS = ("zoo", "smollm2")
"""Models that are named without a path."""


def resolve_model(model: str) -> Path:
    """Return the folder of a model: configuration, safetensors and tokenizer.

    Args:
        model: a folder, one of `WORDS`, or a GGUF file. A GGUF file is dequantised to bfloat16, the default of
            `LLM(model=...)`, also for runs in float32.

    Raises:
        SystemExit: if there is no model there.
    """
    if model not in WORDS and not Path(model).exists():
        raise SystemExit(f"--model {model}: give a folder, a GGUF file, or one of {', '.join(WORDS)}")
    try:
        path = Path(resolve_name(model)).resolve()
    except (ConfigError, ModelError) as error:
        raise SystemExit(f"--model {model}: {error}") from None
    if not (path / "config.json").exists():
        raise SystemExit(f"--model {model}: no config.json there; give the folder of a model")
    return path


def gguf_of(model: str) -> Path:
    """Return the GGUF file of a model.

    Raises:
        SystemExit: if it has none.
    """
    import specdec_zoo

    if model == "smollm2":
        try:
            return specdec_zoo.path(model)
        except FileNotFoundError as error:
            raise SystemExit(f"--model {model}: {error}") from None
    if not model.endswith(".gguf") or not Path(model).is_file():
        raise SystemExit(f"--model {model}: llama.cpp reads GGUF files; give one, or smollm2")
    return Path(model).resolve()


def zoo_artefact(name: str, model: Path | None = None) -> str:
    """Return the folder of one of the zoo's drafts or heads.

    Args:
        name: such as `draft` or `eagle3`.
        model: folder of its target; None for the zoo's own target.

    Raises:
        SystemExit: if the zoo has none for this target.
    """
    config = {} if model is None else json.loads((model / "config.json").read_text(encoding="utf-8"))
    try:
        return str(Path(zoo_draft(name, None, TargetFacts(str(model), config))).resolve())
    except ConfigError as error:
        raise SystemExit(f"{error}; name a folder with --draft or --head") from None
