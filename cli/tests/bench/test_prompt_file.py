"""Prompts of files, in every form there is, and what is said of files that are wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from specdec.errors import ConfigError
from specdec_cli.bench.prompt_file import ChatPrompt, read_prompts

USER = {"role": "user", "content": "three"}
FORMS = [
    {"prompt": "one", "source": "x"},
    {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "two"}]},
    {"messages": [USER, {"role": "assistant", "content": "3"}], "prompt": "repeats the first message"},
    {"turns": ["four", "five"]},
    {"prompt_token_ids": [1, 2]},
]


def prompts(path: Path) -> list[ChatPrompt | list[int]]:
    return [prompt for _, prompt in read_prompts(path)]


@pytest.mark.parametrize(
    "name", ["prompts.jsonl", "prompts.json", "prompts.ndjson", "prompts", "prompts.txt"]
)
def test_lines_of_json_whatever_the_file_is_called(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text("\n\n".join(map(json.dumps, FORMS)) + "\n", encoding="utf-8")
    found = list(read_prompts(file))
    assert [place for place, _ in found] == [f"{file}, line {number}" for number in (1, 3, 5, 7, 9)]
    asked = [prompt for _, prompt in found if isinstance(prompt, ChatPrompt)]
    assert [prompt.messages[-1]["content"] for prompt in asked] == ["one", "two", "three", "four"]
    assert [len(prompt.messages) for prompt in asked] == [1, 2, 1, 1]
    assert [prompt.given for prompt in asked] == [None, None, "3", None]
    assert asked[3].later == ("five",)
    assert found[4][1] == [1, 2]


def test_lines_of_text(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_bytes("\ufeffh\u00e9\r\n\r\n {two \r\n".encode())
    assert prompts(file) == [ChatPrompt(({"role": "user", "content": text},)) for text in ("h\u00e9", "{two")]


def test_a_compressed_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl.gz"
    file.write_bytes(gzip.compress('\ufeff{"prompt": "one"}\n'.encode()))
    assert prompts(file) == [ChatPrompt(({"role": "user", "content": "one"},))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{oops", r"line 2: not JSON: .* \(column 2\)"),
        ("[" * 100_000, "line 2: cannot be read: maximum recursion depth exceeded"),
        ('{"prompt": ' + "9" * 5000, "line 2: cannot be read: Exceeds the limit"),
        ("[1, 2]", "line 2: a JSON object is needed, not list"),
        ('{"text": "x"}', "line 2: needs 'prompt', 'messages', 'turns' or 'prompt_token_ids'"),
        ('{"prompt": "x", "prompt_token_ids": [1]}', "line 2: has both 'prompt' and 'prompt_token_ids'"),
        ('{"prompt": 3}', "line 2: 'prompt' must be text, got 3"),
        ('{"prompt": ""}', "line 2: 'prompt' must be text, got ''"),
        ('{"turns": [1]}', "line 2: 'turns' must be a list of texts, one or more"),
        ('{"prompt_token_ids": [1, true]}', "line 2: 'prompt_token_ids' must be a list of integers"),
        ('{"prompt_token_ids": []}', "line 2: 'prompt_token_ids' must be a list of integers"),
        ('{"messages": []}', "line 2: 'messages' must be a list of messages, one or more"),
        ('{"messages": [{"role": "robot", "content": "x"}]}', "line 2: a message needs a role"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "line 2: there is no user message"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(f'{{"prompt": "fine"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        prompts(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        prompts(file)
    file.write_text("\n\n")
    with pytest.raises(ConfigError, match="holds no prompts"):
        prompts(file)
    file.write_bytes(b'{"prompt": "\xff"}\n')
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        prompts(file)
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(b"no gzip")
    with pytest.raises(ConfigError, match=r"cannot read '.*broken.jsonl.gz': Not a gzipped file"):
        prompts(broken)


def test_a_compressed_line_that_is_too_long(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl.gz"
    file.write_bytes(gzip.compress(b"x" * (2**24 + 1), compresslevel=1))
    with pytest.raises(ConfigError, match=r"long.jsonl.gz, line 1: has more than 16777216 characters"):
        prompts(file)
