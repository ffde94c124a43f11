"""State of a running request besides its tree."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits of a request's drafts, as in `SuffixConfig`, and whether they are trees."""

    max_spec_factor: float
    min_token_prob: float
    is_tree: bool


PROMPT_TOKENS = 12
"""Number of tokens from the end of a prompt that are remembered before its response.

They allow a repeated question to match before its answer begins. The value is half of a tree's default depth: longer matches
would leave less depth for the draft.
"""


class Request:
    """One running request.

    Args:
        text: tokens delivered so far; they wait to be inserted into the tree.
        num_prompt_tokens: length of its prompt.
        rules: limits of its drafts.
    """

    __slots__ = (
        "_lesson",
        "_num_before",
        "num_prompt_tokens",
        "num_tokens",
        "rules",
        "waiting",
    )

    def __init__(self, text: list[int], num_prompt_tokens: int, rules: Rules) -> None:
        self.rules = rules
        self.num_prompt_tokens = num_prompt_tokens
        self.num_tokens = len(text)
        """Number of delivered tokens."""
        self.waiting = text
        """Delivered tokens that are not in the tree yet."""
        self._num_before = max(0, num_prompt_tokens - PROMPT_TOKENS)
        self._lesson = array("i", text[self._num_before :])

    @property
    def lesson(self) -> array[int] | None:
        """The response preceded by the end of its prompt, kept for later requests; None without a response."""
        return self._lesson if self.num_tokens > self.num_prompt_tokens else None

    def append(self, token_ids: list[int]) -> None:
        """Append new tokens; the caller inserts them into the tree or adds them to `waiting`."""
        num_left = self._num_before - self.num_tokens
        self._lesson.extend(token_ids if num_left <= 0 else token_ids[num_left:])
        self.num_tokens += len(token_ids)
