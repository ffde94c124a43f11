"""Renders conversations with a target's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from specdec_cli.bench.prompt_file import ChatPrompt, Message

_PLACEHOLDER = "PLACEHOLDER-OF-A-USER"


@dataclass(frozen=True)
class UserTurn:
    """The template text around a user message."""

    opening: tuple[int, ...]
    """Token ids before the message: given these alone, a chat model writes a user's turn."""
    end_text: str
    """Text after the message."""
    end_id: int | None
    """First token of that text if it is a special token, else None."""


class ChatTemplate:
    """Converts conversations to token ids; without a chat template, single prompts are tokenized as they are.

    Args:
        tokenizer: the target's tokenizer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.is_there = tokenizer.chat_template is not None

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the token ids of a conversation, including the generation prompt.

        Raises:
            ValueError: if several messages are given without a template, or the template rejects them.
        """
        if self.is_there:
            return self._encode(self._render(messages, add_generation_prompt=True))
        if len(messages) > 1:
            raise ValueError(
                "the target's tokenizer has no chat template, which conversations of several messages need: give single prompts"
            )
        return list(self.tokenizer(str(messages[0]["content"]))["input_ids"])

    def answered_ids(self, question: ChatPrompt) -> tuple[list[int], int] | None:
        """Return the token ids of a question with its given answer, and the number of question tokens.

        None if the template renders the question differently once it is answered.
        """
        assert question.given is not None
        prompt = self.prompt_ids(question.messages)
        if not self.is_there:
            return prompt + list(self.tokenizer(question.given, add_special_tokens=False)["input_ids"]), len(
                prompt
            )
        answer = {"role": "assistant", "content": question.given}
        ids = self._encode(self._render([*question.messages, answer]))
        return (ids, len(prompt)) if ids[: len(prompt)] == prompt else None

    def user_turn(self) -> UserTurn:
        """Return the template text around a user's message (Magpie, arXiv 2406.08464).

        Raises:
            ValueError: if there is no chat template, or it does not show where a user's turn ends.
        """
        if not self.is_there:
            raise ValueError(
                "--self-instruct needs a chat template, and the target's tokenizer has none: give --prompts"
            )
        text = self._render([{"role": "user", "content": _PLACEHOLDER}], add_generation_prompt=True)
        before, found, after = text.partition(_PLACEHOLDER)
        if not found or not after.strip():
            raise ValueError("the chat template does not show where a user's turn ends: give --prompts")
        first = self._encode(after.lstrip())[0]
        is_special = first in self.tokenizer.all_special_ids
        return UserTurn(tuple(self._encode(before)), after.strip(), first if is_special else None)

    def _render(self, messages: Sequence[Message], **arguments: Any) -> str:
        conversation: list[Any] = list(messages)
        try:
            return str(self.tokenizer.apply_chat_template(conversation, tokenize=False, **arguments))
        except Exception as error:  # a template is a program, and may fail in any way
            raise ValueError(f"the chat template rejects these messages: {error}") from None

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
