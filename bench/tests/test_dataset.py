"""Prompts from files, and what is said of files that are wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from speccheck.saved import tokenizer

from specdec.errors import ConfigError
from specdec_bench.dataset import read_dataset, tokenize


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prompts.jsonl"


def test_text_and_token_ids(file: Path) -> None:
    file.write_text('{"prompt": "def é", "kind": "x"}\n\n{"prompt_token_ids": [1, 2]}\n', encoding="utf-8")
    assert read_dataset(file) == ["def é", [1, 2]]
    assert read_dataset(file, limit=1) == ["def é"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{oops", r"line 2: not JSON: .* \(column 2\)"),
        ("[" * 100_000, "line 2: cannot be read: maximum recursion depth exceeded"),
        ('{"prompt": ' + "9" * 5000, "line 2: cannot be read: Exceeds the limit"),
        ("[1, 2]", "line 2: needs one of the keys 'prompt' and 'prompt_token_ids'"),
        ('{"text": "x"}', "line 2: needs one of the keys"),
        ('{"prompt": "x", "prompt_token_ids": [1]}', "line 2: needs one of the keys"),
        ('{"prompt": 3}', "line 2: 'prompt' must be text, got 3"),
        ('{"prompt": ""}', "line 2: 'prompt' must be text, got ''"),
        ('{"prompt_token_ids": [1, true]}', "line 2: 'prompt_token_ids' must be a list of integers"),
        ('{"prompt_token_ids": []}', "line 2: 'prompt_token_ids' must be a list of integers"),
    ],
)
def test_a_wrong_line_is_named(file: Path, line: str, message: str) -> None:
    file.write_text(f'{{"prompt": "fine"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        read_dataset(file)


def test_files_that_cannot_be_read(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        read_dataset(file)
    file.write_text("\n\n")
    with pytest.raises(ConfigError, match="holds no prompts"):
        read_dataset(file)
    file.write_bytes(b'{"prompt": "\xff"}\n')
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        read_dataset(file)


def test_a_compressed_line_that_is_too_long(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl.gz"
    file.write_bytes(gzip.compress(b" " * (2**24 + 1), compresslevel=1))
    with pytest.raises(ConfigError, match=r"long.jsonl.gz, line 1: has more than 16777216 characters"):
        read_dataset(file)


def test_tokens_of_text_and_of_ids() -> None:
    made = tokenizer()
    assert tokenize(["self", [5, 6]], made, 10) == (tuple(made("self")["input_ids"]), (5, 6))


def test_prompts_that_cannot_be_used() -> None:
    with pytest.raises(ConfigError, match="need a tokenizer"):
        tokenize(["self"], None, 10)
    with pytest.raises(ConfigError, match="prompt 2 has 10 tokens: between 1 and 9 fit the model"):
        tokenize([[1], list(range(10))], None, 10)
