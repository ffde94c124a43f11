"""The prompts of a run, as token ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from speccheck.saved import tokenizer

from specdec.errors import ConfigError
from specdec_cli.bench.dataset import read_dataset, tokenize
from specdec_cli.bench.prompt_file import ChatPrompt, ask

TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
CHAT = ChatPrompt(({"role": "system", "content": "a"}, {"role": "user", "content": "b"}))


def test_a_file_as_far_as_it_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "def \u00e9"}\n{"prompt_token_ids": [1, 2]}\n{oops\n', encoding="utf-8")
    assert read_dataset(file, limit=2) == [ask("def \u00e9"), [1, 2]]
    with pytest.raises(ConfigError, match="line 3: not JSON"):
        read_dataset(file)


def test_questions_of_several_turns_are_for_a_suite(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"turns": ["one"]}\n{"turns": ["one", "two"]}\n')
    assert read_dataset(file, limit=1) == [ask("one")]
    with pytest.raises(ConfigError, match=r"line 2: .* --suite spec_bench"):
        read_dataset(file)


def test_tokens_of_text_and_of_ids() -> None:
    made = tokenizer()
    ids = tuple(made("self")["input_ids"])
    assert tokenize(["self", ask("self"), [5, 6]], made, 10) == (ids, ids, (5, 6))


def test_conversations_go_through_the_chat_template() -> None:
    made = tokenizer()
    made.chat_template = TEMPLATE
    written = ("self", "<user>self\n<assistant>", "<system>a\n<user>b\n<assistant>")
    expected = [tuple(made(text, add_special_tokens=False)["input_ids"]) for text in written]
    assert tokenize(["self", ask("self"), CHAT], made, 100) == tuple(expected)


def test_prompts_that_cannot_be_used() -> None:
    with pytest.raises(ConfigError, match="need a tokenizer"):
        tokenize(["self"], None, 10)
    with pytest.raises(ConfigError, match="prompt 2 has 10 tokens: between 1 and 9 fit the model"):
        tokenize([[1], list(range(10))], None, 10)
    with pytest.raises(ConfigError, match=r"prompt 1 has several messages, .* no chat template"):
        tokenize([CHAT], tokenizer(), 100)
