"""Questions as prompts."""

from __future__ import annotations

import logging

import pytest
from speccheck.saved import tokenizer
from transformers import PreTrainedTokenizerBase

from specdec.errors import ConfigError
from specdec_cli.bench.suites import Question, chats_of
from specdec_cli.bench.suites.chat import Chat

TWO_TURNS = Question(3, "essays", ("a dog", "a cat"))


def test_later_turns_follow_the_answers(chat_tokenizer: PreTrainedTokenizerBase) -> None:
    chat = Chat(TWO_TURNS, chat_tokenizer, 100)
    first, second = chat.prompt([]), chat.prompt(["woof"])
    assert chat_tokenizer.decode(first) == "<user>a dog\n<assistant>"
    assert chat_tokenizer.decode(second) == "<user>a dog\n<assistant>woof\n<user>a cat\n<assistant>"
    assert chat.prompt(["woof", "meow"]) is None


def test_without_a_template_turns_are_plain_text() -> None:
    made = tokenizer()
    chat = Chat(TWO_TURNS, made, 100)
    assert made.decode(chat.prompt([])) == "a dog"
    assert made.decode(chat.prompt(["woof"])) == "a dog\n\nwoof\n\na cat"


def test_a_prompt_that_does_not_fit_ends_the_conversation(
    chat_tokenizer: PreTrainedTokenizerBase, caplog: pytest.LogCaptureFixture
) -> None:
    length = len(Chat(TWO_TURNS, chat_tokenizer, 1000).prompt(["woof"]) or ())
    assert Chat(TWO_TURNS, chat_tokenizer, length + 1).prompt(["woof"]) is not None
    with caplog.at_level(logging.WARNING, logger="specdec"):
        assert Chat(TWO_TURNS, chat_tokenizer, length).prompt(["woof"]) is None
    assert f"question 4 ends after 1 of 2 turns: its next prompt would have {length} tokens" in caplog.text


def test_questions_too_long_are_left_out_and_counted(
    chat_tokenizer: PreTrainedTokenizerBase, caplog: pytest.LogCaptureFixture
) -> None:
    short, long = Question(0, "a", ("hi",)), Question(1, "a", ("word " * 50,))
    needed = Chat(short, chat_tokenizer, 0).num_tokens(8)
    assert needed == len(Chat(short, chat_tokenizer, 1000).prompt([]) or ()) + 8
    with caplog.at_level(logging.WARNING, logger="specdec"):
        chats = chats_of([short, long], chat_tokenizer, 60, 8)
    assert (list(chats.by_number), chats.num_left_out, chats.max_model_len) == ([0], 1, needed)
    assert "1 of 2 questions are left out: with answers of 8 tokens" in caplog.text
    with pytest.raises(ConfigError, match="none of the 1 questions fits the model's 60 tokens"):
        chats_of([long], chat_tokenizer, 60, 8)
    with pytest.raises(ConfigError, match="need a tokenizer"):
        chats_of([short], None, 60, 8)


def test_room_for_answers_that_grow_when_tokenized_again(chat_tokenizer: PreTrainedTokenizerBase) -> None:
    chats = chats_of([TWO_TURNS], chat_tokenizer, 1000, 8)
    assert chats.max_model_len == Chat(TWO_TURNS, chat_tokenizer, 0).num_tokens(8) + 2 * 8
    assert chats.by_number[3].max_model_len == chats.max_model_len
    assert chats_of([TWO_TURNS], chat_tokenizer, chats.max_model_len - 1, 8).max_model_len == (
        chats.max_model_len - 1
    )


def test_a_model_without_a_template_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="specdec"):
        chats_of([TWO_TURNS], tokenizer(), 1000, 8)
    assert "the model has no chat template" in caplog.text
