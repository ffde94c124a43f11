"""Reads prompts from files."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec_train.answers.record import digest_of

Message = dict[str, Any]
_MOST_BYTES, _MOST_EXPANSION = 2**24, 100
"""A compressed file may hold so many bytes, or so many times its own size if that is more."""
_ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True)
class Question:
    """A conversation that ends with a user turn, and the user's later turns."""

    messages: tuple[Message, ...]
    """OpenAI's messages: `role` and `content`."""
    later: tuple[str, ...] = ()
    """Further user turns, each asked after the answer to the one before."""
    given: str | None = None
    """The answer in the file."""

    @property
    def source(self) -> str:
        """A hash shared by all turns of the conversation."""
        return digest_of(next(str(m["content"]) for m in self.messages if m["role"] == "user"))


def read_prompts(files: Sequence[Path]) -> list[Question]:
    """Return the questions of files without duplicates, in file order.

    A line of a `.jsonl` file holds `{"prompt": ...}`, `{"messages": [...]}` in OpenAI's format, or
    `{"turns": [...]}`; a line of any other file is a prompt. Files that end in `.gz` are decompressed.

    Raises:
        ValueError: if a file or a line cannot be read (the message names it), or there is no prompt at all.
    """
    questions: dict[tuple[str, ...], Question] = {}
    for file in files:
        is_json = file.name.removesuffix(".gz").endswith((".jsonl", ".json"))
        for number, line in enumerate(_lines(file), 1):
            if not line.strip():
                continue
            question = _question(line, f"{file}:{number}") if is_json else _ask(line.strip())
            questions.setdefault((json.dumps(question.messages), *question.later), question)
    if files and not questions:
        raise ValueError(f"there is no prompt in {', '.join(map(str, files))}")
    return list(questions.values())


def _lines(file: Path) -> Iterator[str]:
    try:
        most = max(_MOST_BYTES, _MOST_EXPANSION * file.stat().st_size)
        with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as stream:
            content = stream.read(most + 1)
        if len(content) > most:
            raise ValueError(f"{file} holds more than {most} bytes: decompress it to use it")
        yield from content.decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{file} cannot be read as UTF-8 text: {reason}") from None


def _ask(text: str, *later: str) -> Question:
    return Question(({"role": "user", "content": text},), later)


def _question(line: str, place: str) -> Question:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON ({error})") from None
    if not isinstance(record, dict):
        raise ValueError(f"{place}: a JSON object is needed, not {type(record).__name__}")
    messages, turns, prompt = (record.get(key) for key in ("messages", "turns", "prompt"))
    if isinstance(messages, list) and messages:
        return _conversation(messages, place)
    if isinstance(turns, list) and turns and all(isinstance(turn, str) and turn for turn in turns):
        return _ask(*turns)
    if isinstance(prompt, str) and prompt:
        return _ask(prompt)
    raise ValueError(f'{place}: needs {{"prompt": ...}}, {{"messages": [...]}} or {{"turns": [...]}}')


def _conversation(messages: list[Any], place: str) -> Question:
    for message in messages:
        if not (
            isinstance(message, dict)
            and message.get("role") in _ROLES
            and isinstance(message.get("content"), str)
        ):
            raise ValueError(f"{place}: a message needs a role ({', '.join(_ROLES)}) and a text as content")
    given = messages[-1]["content"] if messages[-1]["role"] == "assistant" else None
    asked = messages if given is None else messages[:-1]
    if not any(message["role"] == "user" for message in asked):
        raise ValueError(f"{place}: there is no user message to answer")
    return Question(tuple(asked), (), given)
