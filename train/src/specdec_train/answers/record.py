"""One answered prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

_SHORTEST = 4
"""Tokens that an answer has to have."""


@dataclass(frozen=True)
class Answered:
    """A prompt as the chat template writes it, and the answer behind it."""

    ids: Sequence[int]
    """Token ids of both."""
    num_prompt: int
    """How many of them are the prompt's."""
    temperature: float = 0.0
    """At which the answer was sampled; 0 is greedy."""
    source: str = ""
    """What of a file's line it began with, as a hash: all turns of a conversation have the same."""
    is_written: bool = False
    """Whether the target wrote the prompt itself."""

    @property
    def prompt(self) -> Sequence[int]:
        """Token ids of the prompt."""
        return self.ids[: self.num_prompt]

    @property
    def answer(self) -> Sequence[int]:
        """Token ids of the answer."""
        return self.ids[self.num_prompt :]

    def num_learnt(self, window: int) -> int:
        """Return how many tokens of the answer lie in the first `window` of all, 0 for too few to learn from."""
        count = min(len(self.ids), window) - self.num_prompt
        return count if count >= _SHORTEST else 0

    def is_held_out(self, permille: int) -> bool:
        """Return whether it is kept from training: its own hash decides, so it never changes sides."""
        name = self.source or digest_of(self.prompt)
        return int(name[:8], 16) % 1000 < permille


def digest_of(content: Sequence[int] | str) -> str:
    """Return a hash of token ids or text."""
    text = content if isinstance(content, str) else " ".join(map(str, content))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
