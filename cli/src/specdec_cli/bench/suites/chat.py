"""Turns questions into prompts with the chat template; each turn follows the model's own answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from specdec.config import notice
from specdec_cli.bench.suites.question import Question
from specdec_cli.chat_prompt import chat_prompt

SEPARATOR = "\n\n"
"""Separates turns and answers if the model has no chat template."""


@dataclass(frozen=True)
class Chat:
    """One question as a conversation.

    Args:
        question: the user's turns.
        tokenizer: the target's tokenizer; without a chat template the turns are plain text.
        max_model_len: prompts of this length or more are not run.
    """

    question: Question
    tokenizer: PreTrainedTokenizerBase
    max_model_len: int

    def prompt(self, answers: Sequence[str]) -> tuple[int, ...] | None:
        """Return the prompt of the turn after these answers; None after the last turn."""
        if len(answers) == len(self.question.turns):
            return None
        ids = self._token_ids(answers)
        if len(ids) < self.max_model_len:
            return ids
        notice(
            f"turn of question {self.question.number}",
            f"question {self.question.number + 1} ends after {len(answers)} of {len(self.question.turns)} turns: its next "
            f"prompt would have {len(ids)} tokens, and {self.max_model_len - 1} fit",
        )
        return None

    def num_tokens(self, max_tokens: int) -> int:
        """Return the length of the conversation if all answers have the maximum length."""
        turns = self.question.turns
        return len(self._token_ids([""] * (len(turns) - 1))) + max_tokens * len(turns)

    def _token_ids(self, answers: Sequence[str]) -> tuple[int, ...]:
        said = self.question.turns[: len(answers) + 1]
        if self.tokenizer.chat_template is None:
            parts = [part for pair in zip(said, answers, strict=False) for part in pair] + [said[-1]]
            return tuple(self.tokenizer(SEPARATOR.join(parts))["input_ids"])
        messages = [{"role": "user", "content": said[0]}]
        for answer, turn in zip(answers, said[1:], strict=True):
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": turn}]
        return tuple(chat_prompt(self.tokenizer, messages)["prompt_token_ids"])
