"""Prompts of files, in every form there is."""

from __future__ import annotations

import gzip
import json

import pytest

from specdec_train.answers.prompts import read_prompts


def test_prompts_messages_turns_and_lines(tmp_path):
    lines = [
        {"prompt": "one", "source": "x"},
        {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "two"}]},
        {"messages": [{"role": "user", "content": "three"}, {"role": "assistant", "content": "3"}]},
        {"turns": ["four", "five"]},
        {"prompt": "one"},
    ]
    packed, plain = tmp_path / "prompts.jsonl.gz", tmp_path / "prompts.txt"
    packed.write_bytes(gzip.compress("\n\n".join(map(json.dumps, lines)).encode()))
    plain.write_text("six\n\n seven \n")
    found = read_prompts([packed, plain])
    assert [question.messages[-1]["content"] for question in found] == [
        "one", "two", "three", "four", "six", "seven",
    ]  # fmt: skip
    assert [len(question.messages) for question in found] == [1, 2, 1, 1, 1, 1]
    assert [question.given for question in found] == [None, None, "3", None, None, None]
    assert found[3].later == ("five",)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{no json", r"bad\.jsonl:1: not JSON"),
        ("[1]", "a JSON object is needed, not list"),
        ("[" * 100_000, r"bad\.jsonl:1: not JSON \(maximum recursion"),
        ('{"prompt": 3}', r'needs \{"prompt"'),
        ('{"messages": [{"role": "robot", "content": "x"}]}', "a message needs a role"),
        ('{"messages": [{"role": "assistant", "content": "x"}]}', "there is no user message"),
        ("\n\n", "there is no prompt in"),
    ],
)
def test_what_does_not_do_names_the_line(content, expected, tmp_path):
    (tmp_path / "bad.jsonl").write_text(content)
    with pytest.raises(ValueError, match=expected):
        read_prompts([tmp_path / "bad.jsonl"])


@pytest.mark.parametrize("name", ["nowhere.jsonl", "broken.jsonl.gz"])
def test_files_that_cannot_be_read(name, tmp_path):
    (tmp_path / "broken.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(ValueError, match=f"{name} cannot be read"):
        read_prompts([tmp_path / name])


def test_a_compressed_file_that_holds_far_more_than_its_size(tmp_path):
    (tmp_path / "bomb.jsonl.gz").write_bytes(gzip.compress(b"\n" * (2**24 + 1), compresslevel=1))
    with pytest.raises(ValueError, match=r"bomb.jsonl.gz holds more than 16777216 bytes: decompress it"):
        read_prompts([tmp_path / "bomb.jsonl.gz"])
