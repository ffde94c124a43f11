"""Prompts that a target answers, from several files."""

from __future__ import annotations

import json

import pytest

from specdec.errors import ConfigError
from specdec_train.answers.prompts import read_chat_prompts, source_of


def test_prompts_of_files_without_duplicates(tmp_path):
    lines = [{"prompt": "one"}, {"turns": ["four", "five"]}, {"turns": ["four"]}, {"prompt": "one"}]
    table, plain = tmp_path / "prompts.jsonl", tmp_path / "prompts.txt"
    table.write_text("\n".join(map(json.dumps, lines)))
    plain.write_text("six\none\n")
    found = read_chat_prompts([table, plain])
    assert [prompt.messages[-1]["content"] for prompt in found] == ["one", "four", "four", "six"]
    assert source_of(found[1]) == source_of(found[2]) != source_of(found[3])


def test_token_ids_are_no_text_to_answer(tmp_path):
    (tmp_path / "ids.jsonl").write_text('{"prompt_token_ids": [1]}')
    with pytest.raises(ConfigError, match=r"ids.jsonl, line 1: answers are made to text: give 'prompt'"):
        read_chat_prompts([tmp_path / "ids.jsonl"])
