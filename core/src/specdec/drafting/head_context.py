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

    def hold(self, num_tokens: int, num_stages: int) -> None:
        """Begin anew, with the rows of the first `num_tokens` tokens in the cache."""
        self.num_tokens, self.is_lost, self.last_logits = num_tokens, False, None
        self.num_rows = [max(0, num_tokens - 1 - stage) for stage in range(num_stages)]
        self.last_carry = [None] * num_stages

    def keep(self, stage: int, carries: torch.Tensor) -> None:
        """Note the carries `[n, F]`, n > 0, of rows that a stage has just run.

        Args:
            stage: the stage.
            carries: of its new rows, in order.
        """
        self.num_rows[stage] += len(carries)
        self.last_carry[stage] = carries[-1].clone()

    def forget_from(self, start: int) -> bool:
        """Forget the tokens from position `start` on; returns whether there were any."""
        if start >= self.num_tokens:
            return False
        self.hold(start, len(self.num_rows))
        return True
