"""The prompts of a comparison, as token ids."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from specdec.errors import ConfigError
from specdec_cli.bench.suites import Question, even_sample, load_suite
from specdec_cli.bench.suites.chat import Chat

_ANY_LENGTH = sys.maxsize


def load_prompts(file: Path | None, model: Path, count: int, longest: int) -> list[list[int]]:
    """Return `count` prompts of at most `longest` tokens each; prompts repeat if there are fewer.

    Token ids are used unchanged. Texts of a file and HumanEval's tasks use the chat template if the tokenizer has
    one. Only the first turn of a conversation is used, since later turns depend on the answers. Chats that are too
    long are skipped; all other prompts are truncated at the beginning. If every row has a category, the prompts are
    sampled evenly over the categories.

    Args:
        file: JSON lines with `prompt_token_ids`, `turns` or `prompt` each; None for the zoo's held-out prompts if
            the model is the zoo's target, and for HumanEval otherwise.
        model: folder whose tokenizer is used for texts.
        count: number of prompts.
        longest: maximum tokens of a prompt.

    Raises:
        SystemExit: if there are no prompts or none is short enough.
    """
    if file is None and _is_zoo(model):
        tokenizer = AutoTokenizer.from_pretrained(model)
        found = [_last(tokenizer(text)["input_ids"], longest) for text in _zoo_texts(count)]
    else:
        rows = _human_eval() if file is None else _file_rows(file)
        found = _read(rows, model, count, longest)
    if not found:
        raise SystemExit(f"{file or 'HumanEval'}: no prompts of at most {longest} tokens")
    return [found[index % len(found)] for index in range(count)]


def _is_zoo(model: Path) -> bool:
    import specdec_zoo

    return "target" in specdec_zoo.names() and model == specdec_zoo.path("target").resolve()


def _zoo_texts(count: int) -> list[str]:
    import specdec_zoo

    return [str(prompt["prompt"]) for prompt in specdec_zoo.prompts(limit=count)]


def _human_eval() -> list[dict[str, Any]]:
    try:
        questions = load_suite("humaneval", None).questions
    except ConfigError as error:
        raise SystemExit(f"{error}; or give --prompts FILE") from None
    return [{"turns": question.turns, "category": question.category} for question in questions]


def _file_rows(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def _read(rows: Sequence[Mapping[str, Any]], model: Path, count: int, longest: int) -> list[list[int]]:
    """Return the token ids of up to `count` rows that are short enough."""
    if any("prompt_token_ids" not in row for row in rows):
        tokenizer = AutoTokenizer.from_pretrained(model)
        ids = [_token_ids(row, number, tokenizer, longest) for number, row in enumerate(rows)]
    else:
        ids = [_last(row["prompt_token_ids"], longest) for row in rows]
    short = [number for number, prompt in enumerate(ids) if len(prompt) <= longest]
    if len(short) < len(rows):
        print(
            f"{len(rows) - len(short)} of {len(rows)} prompts are left out: they have more than {longest} tokens",
            file=sys.stderr,
        )
    if all("category" in row for row in rows):
        questions = [Question(number, str(rows[number]["category"]), ()) for number in short]
        short = [question.number for question in even_sample(questions, count)]
    return [ids[number] for number in short[:count]]


def _token_ids(
    row: Mapping[str, Any], number: int, tokenizer: PreTrainedTokenizerBase, longest: int
) -> list[int]:
    """Return the token ids of a row; only a chat may exceed `longest`."""
    if "prompt_token_ids" in row:
        return _last(row["prompt_token_ids"], longest)
    turns = row.get("turns") or [row.get("prompt")]
    if not isinstance(turns[0], str):
        raise SystemExit(f"prompt {number + 1} has no prompt_token_ids, turns or prompt")
    ids = Chat(Question(number, "", (turns[0],)), tokenizer, _ANY_LENGTH).prompt(())
    assert ids is not None
    return list(ids) if tokenizer.chat_template is not None else _last(ids, longest)


def _last(token_ids: Sequence[int], longest: int) -> list[int]:
    return [int(token) for token in token_ids[-longest:]]
