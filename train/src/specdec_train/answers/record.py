"""One answered prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

_SHORTEST = 4
"""Minimum number of answer tokens to train on."""


@dataclass(frozen=True)
class Answered:
    """A prompt as the chat template renders it, followed by its answer."""

    ids: Sequence[int]
    """Token ids of prompt and answer."""
    num_prompt: int
    """Number of prompt tokens."""
    temperature: float = 0.0
    """Sampling temperature of the answer; 0 is greedy."""
    source: str = ""
    """Hash of the conversation's first user message, the same for all its turns."""
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
        """Return how many answer tokens are among the first `window` tokens; 0 if too few to train on."""
        count = min(len(self.ids), window) - self.num_prompt
        return count if count >= _SHORTEST else 0

    def is_held_out(self, permille: int) -> bool:
        """Return whether it is held out from training; this depends only on its hash and never changes."""
        name = self.source or digest_of(self.prompt)
        return int(name[:8], 16) % 1000 < permille


def digest_of(content: Sequence[int] | str) -> str:
    """Return a hash of token ids or text."""
    text = content if isinstance(content, str) else " ".join(map(str, content))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
