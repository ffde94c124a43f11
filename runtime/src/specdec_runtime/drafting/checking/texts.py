"""The texts that a head is tried on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specdec import ConfigError
from specdec_cli.bench.lines import parsed

_LEAST = 8


def read_texts(path: Path, tokenizer: Any, longest: int) -> list[list[int]]:
    """Return token ids of texts.

    Args:
        path: JSON lines with `text`, `prompt` (and `response`, which follows it) or `token_ids`, or plain text.
        tokenizer: the target's; None if the file has ids only.
        longest: most tokens of a text; longer ones are cut into pieces.

    Raises:
        ConfigError: naming the file, and the line that holds no text.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompts: {path} cannot be read: {error}") from None
    whole: list[list[int]] = []
    if content.lstrip().startswith("{"):
        for number, line in enumerate(content.splitlines(), 1):
            if line.strip():
                place = f"{path}, line {number}"
                whole.append(_ids(parsed(line, place), tokenizer, place))
    else:
        whole.append(_ids({"text": content}, tokenizer, str(path)))
    pieces = [ids[start : start + longest] for ids in whole for start in range(0, len(ids), longest)]
    found = [piece for piece in pieces if len(piece) >= _LEAST]
    if not found:
        raise ConfigError(f"--prompts: {path} holds no text of {_LEAST} tokens or more")
    return found


def _ids(record: Any, tokenizer: Any, origin: str) -> list[int]:
    if not isinstance(record, dict):
        raise ConfigError(f"{origin}: a JSON object is needed, not {type(record).__name__}")
    ids = record.get("token_ids", record.get("prompt_token_ids"))
    if isinstance(ids, list) and all(isinstance(i, int) for i in ids):
        return ids
    text = record.get("text", record.get("prompt"))
    if not isinstance(text, str):
        raise ConfigError(f'{origin}: give "text", "prompt" or "token_ids"')
    if tokenizer is None:
        raise ConfigError(f'{origin}: the target has no tokenizer: give "token_ids"')
    answer = record.get("response", "")
    found: list[int] = tokenizer(text + (answer if isinstance(answer, str) else ""), verbose=False)[
        "input_ids"
    ]
    return found
