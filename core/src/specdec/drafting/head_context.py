"""What a head's cache holds of one request."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(slots=True)
class HeadContext:
    """Rows of committed tokens, each made with the target's own state; guesses are never kept.

    The row of the token at position j lies in slot j - 1 - s of stage s: the first token has no state that chose it, and each
    further stage needs one token more before it.
    """

    num_tokens: int = 0
    """Committed tokens taken in."""
    num_rows: list[int] = field(default_factory=lambda: [0])
    """Rows in each stage."""
    last_carry: list[torch.Tensor | None] = field(default_factory=lambda: [None])
    """`[F]` carry of the last row of each stage: the feature of the next token in the stage behind it."""
    last_logits: torch.Tensor | None = None
    """`[V']` of the last row of stage 0, in case a draft is wanted while nothing is new."""
    is_lost: bool = False
    """Whether tokens were missed; nothing is drafted until they are delivered again from the start."""

    def restart(self, num_stages: int) -> None:
        """Forget everything."""
        self.num_tokens, self.is_lost, self.last_logits = 0, False, None
        self.num_rows, self.last_carry = [0] * num_stages, [None] * num_stages

    def forget_from(self, start: int) -> None:
        """Forget the tokens from position `start` on.

        With one stage nothing else is needed; further stages would need a carry that is gone, so they begin anew.
        """
        if start >= self.num_tokens:
            return
        self.num_tokens = start
        self.last_logits = None
        if len(self.num_rows) == 1:
            self.num_rows = [max(0, start - 1)]
            self.last_carry = [None]
        elif start > 0:
            self.is_lost = True
