"""Loads a suite by name and turns its questions into conversations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from transformers import PreTrainedTokenizerBase

from specdec import ConfigError
from specdec.config import notice
from specdec_cli.bench.suites import human_eval
from specdec_cli.bench.suites.chat import Chat
from specdec_cli.bench.suites.question import Question, Suite
from specdec_cli.bench.suites.question_file import FILES

SUITES = MappingProxyType[str, Callable[[Path | None], Suite]](
    {**{file.name: file.read for file in FILES}, human_eval.NAME: human_eval.read_human_eval}
)


def load_suite(name: str, file: Path | None) -> Suite:
    """Read a suite.

    Args:
        name: one of `SUITES`.
        file: file with the questions, for a suite that does not include them.

    Raises:
        ConfigError: for an unknown name, and for missing or invalid questions.
    """
    if name not in SUITES:
        raise ConfigError(f"--suite: there is no suite {name!r}; there are {', '.join(SUITES)}")
    return SUITES[name](file)


@dataclass(frozen=True)
class Chats:
    """The questions that fit a model."""

    by_number: dict[int, Chat]
    num_left_out: int
    """Number of questions that are too long for the model."""
    max_model_len: int
    """Context length that the longest conversation needs, in tokens."""


def chats_of(
    questions: Sequence[Question],
    tokenizer: PreTrainedTokenizerBase | None,
    max_model_len: int,
    max_tokens: int,
) -> Chats:
    """Return the questions as conversations, without those that exceed the model's context at maximum length.

    Raises:
        ConfigError: for a model without a tokenizer, and if no question is left.
    """
    if tokenizer is None:
        raise ConfigError("questions of text need a tokenizer, and the model has none")
    if tokenizer.chat_template is None:
        notice(
            "suite without chat template",
            "the model has no chat template: it is given the turns as plain text, with an empty line between them; numbers are "
            "not comparable with those of chat models",
        )
    chats = {question.number: Chat(question, tokenizer, max_model_len) for question in questions}
    lengths = {number: chat.num_tokens(max_tokens) for number, chat in chats.items()}
    fitting = {number: chats[number] for number, length in lengths.items() if length <= max_model_len}
    num_left_out = len(chats) - len(fitting)
    if not fitting:
        raise ConfigError(
            f"none of the {len(chats)} questions fits the model's {max_model_len} tokens with answers of {max_tokens} tokens: "
            "lower --max-tokens, or raise --max-model-len where it is given"
        )
    if num_left_out:
        notice(
            "suite with long questions",
            f"{num_left_out} of {len(chats)} questions are left out: with answers of {max_tokens} tokens they are longer than "
            f"the model's {max_model_len} tokens",
        )
    # An answer token may become up to three tokens when the text is tokenized again, for broken characters.
    longest = max(
        lengths[number] + 2 * max_tokens * (len(chat.question.turns) - 1) for number, chat in fitting.items()
    )
    limit = min(max_model_len, longest)
    return Chats(
        {number: replace(chat, max_model_len=limit) for number, chat in fitting.items()}, num_left_out, limit
    )
