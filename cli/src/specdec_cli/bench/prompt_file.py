"""Reads prompts from files: JSON lines in the forms that are in use, or plain text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec import ConfigError
from specdec_cli.bench.lines import parsed, text_lines

Message = dict[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool")
_JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")


@dataclass(frozen=True)
class ChatPrompt:
    """A conversation that ends with a user turn, and the user's later turns."""

    messages: tuple[Message, ...]
    """OpenAI's messages: `role` and `content`."""
    later: tuple[str, ...] = ()
    """Further user turns, each asked after the answer to the one before."""
    given: str | None = None
    """The answer in the file."""


def ask(text: str, *later: str) -> ChatPrompt:
    """Return the conversation of a user who says this, and then each of the later turns."""
    return ChatPrompt(({"role": "user", "content": text},), later)


def read_prompts(path: Path) -> Iterator[tuple[str, ChatPrompt | list[int]]]:
    """Yield the location (file and number) of each line with a prompt, and the prompt: a conversation or token ids.

    A line of JSON has `{"prompt": ...}`, `{"messages": [...]}` in OpenAI's format, `{"turns": [...]}` or
    `{"prompt_token_ids": [...]}`; other keys are ignored. In files of another name whose first line is no JSON object,
    each line is a prompt. Blank lines are skipped, `.gz` is decompressed.

    Raises:
        ConfigError: naming the file, and the number of a line that is no prompt.
    """
    is_json = path.name.removesuffix(".gz").endswith(_JSON_SUFFIXES)
    has_prompts = False
    for place, line in text_lines(path):
        is_json = is_json or (not has_prompts and line.lstrip().startswith("{"))
        has_prompts = True
        yield place, _prompt(parsed(line, place), place) if is_json else ask(line.strip())
    if not has_prompts:
        raise ConfigError(f"{path} holds no prompts")


def _prompt(record: Any, place: str) -> ChatPrompt | list[int]:
    if not isinstance(record, dict):
        raise ConfigError(f"{place}: a JSON object is needed, not {type(record).__name__}")
    if "messages" in record:
        return _conversation(record["messages"], place)
    if "turns" in record:
        return ask(*_turns(record["turns"], place))
    if "prompt" in record:
        if "prompt_token_ids" in record:
            raise ConfigError(f"{place}: has both 'prompt' and 'prompt_token_ids': give one of them")
        text = record["prompt"]
        if not isinstance(text, str) or not text:
            raise ConfigError(f"{place}: 'prompt' must be text, got {text!r}")
        return ask(text)
    if "prompt_token_ids" not in record:
        raise ConfigError(f"{place}: needs 'prompt', 'messages', 'turns' or 'prompt_token_ids'")
    ids = record["prompt_token_ids"]
    if not isinstance(ids, list) or not ids or not all(type(token_id) is int for token_id in ids):
        raise ConfigError(f"{place}: 'prompt_token_ids' must be a list of integers")
    return ids


def _turns(turns: Any, place: str) -> list[str]:
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn for turn in turns):
        raise ConfigError(f"{place}: 'turns' must be a list of texts, one or more")
    return turns


def _conversation(messages: Any, place: str) -> ChatPrompt:
    if not isinstance(messages, list) or not messages:
        raise ConfigError(f"{place}: 'messages' must be a list of messages, one or more")
    for message in messages:
        if not (
            isinstance(message, dict)
            and message.get("role") in ROLES
            and isinstance(message.get("content"), str)
        ):
            raise ConfigError(f"{place}: a message needs a role ({', '.join(ROLES)}) and a text as content")
    given = messages[-1]["content"] if messages[-1]["role"] == "assistant" else None
    asked = messages if given is None else messages[:-1]
    if not any(message["role"] == "user" for message in asked):
        raise ConfigError(f"{place}: there is no user message to answer")
    return ChatPrompt(tuple(asked), (), given)
