"""The prompts of a comparison, as token ids."""

from __future__ import annotations

import json
from pathlib import Path

from transformers import AutoTokenizer


def resolve_model(model: str) -> Path:
    """Return the folder of a model: a path, or the word `zoo`.

    Raises:
        SystemExit: if there is no model there.
    """
    if model == "zoo":
        import specdec_zoo

        return specdec_zoo.path("target").resolve()
    path = Path(model).resolve()
    if not (path / "config.json").exists():
        raise SystemExit(f"--model {model}: no config.json there; give the folder of a model, or zoo")
    return path


def zoo_artefact(name: str) -> str:
    """Return the folder of one of the zoo's models."""
    import specdec_zoo

    return str(specdec_zoo.path(name).resolve())


def load_prompts(file: Path | None, model: Path, count: int, longest: int) -> list[list[int]]:
    """Return `count` prompts of at most `longest` tokens each; longer ones lose their beginning.

    Args:
        file: JSON lines with `prompt_token_ids` or `prompt` each; None for the zoo's held-out prompts.
        model: folder whose tokenizer is used for texts.
        count: how many; prompts are used again if there are fewer.
        longest: most tokens of a prompt.
    """
    rows = _zoo_rows(count) if file is None else _file_rows(file)
    if not rows:
        raise SystemExit(f"{file}: no prompts")
    found = []
    tokenizer = None
    for index in range(count):
        row = rows[index % len(rows)]
        token_ids = row.get("prompt_token_ids")
        if token_ids is None:
            tokenizer = tokenizer or AutoTokenizer.from_pretrained(model)
            token_ids = tokenizer(row["prompt"])["input_ids"]
        assert isinstance(token_ids, list)
        found.append([int(token) for token in token_ids[-longest:]])
    return found


def _zoo_rows(count: int) -> list[dict[str, object]]:
    import specdec_zoo

    return [dict(prompt) for prompt in specdec_zoo.prompts(limit=count)]


def _file_rows(file: Path) -> list[dict[str, object]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]
