"""The state of one request in a head's cache."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(slots=True)
class HeadContext:
    """Tracks the rows of committed tokens, each made with the target's own state; rows of drafted tokens are not kept.

    The row of the token at position j is in slot j - 1 - s of stage s. No state predicted the first token, and each
    further stage needs one more token before it.
    """

    num_tokens: int = 0
    """Number of committed tokens processed."""
    num_rows: list[int] = field(default_factory=lambda: [0])
    """Number of rows in each stage."""
    last_carry: list[torch.Tensor | None] = field(default_factory=lambda: [None])
    """`[F]` carry of each stage's last row: the feature of the next token in the following stage."""
    last_logits: torch.Tensor | None = None
    """`[V']` of the last row of stage 0, for drafts that are requested without new tokens."""
    is_lost: bool = False
    """Whether tokens were missed. Nothing is drafted until they are delivered again from the start."""

    def hold(self, num_tokens: int, num_stages: int) -> None:
        """Reset to the state in which the cache holds the rows of the first `num_tokens` tokens."""
        self.num_tokens, self.is_lost, self.last_logits = num_tokens, False, None
        self.num_rows = [max(0, num_tokens - 1 - stage) for stage in range(num_stages)]
        self.last_carry = [None] * num_stages

    def keep(self, stage: int, carries: torch.Tensor) -> None:
        """Record the carries `[n, F]`, n > 0, of rows that a stage has just run.

        Args:
            stage: the stage.
            carries: carries of its new rows, in order.
        """
        self.num_rows[stage] += len(carries)
        self.last_carry[stage] = carries[-1].clone()

    def forget_from(self, start: int) -> bool:
        """Forget the tokens from position `start` on; returns whether there were any."""
        if start >= self.num_tokens:
            return False
        self.hold(start, len(self.num_rows))
        return True
