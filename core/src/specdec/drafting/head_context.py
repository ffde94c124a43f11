"""What a head's cache holds of one request."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from specdec.drafting.carry_history import CarryHistory


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
    histories: list[CarryHistory] = field(default_factory=list)
    """Carries of all rows of each stage but the last, from which the stage behind it goes on wherever a text changes."""
    last_logits: torch.Tensor | None = None
    """`[V']` of the last row of stage 0, in case a draft is wanted while nothing is new."""
    is_lost: bool = False
    """Whether tokens were missed; nothing is drafted until they are delivered again from the start."""

    def restart(self, num_stages: int) -> None:
        """Forget everything."""
        self.num_tokens, self.is_lost, self.last_logits = 0, False, None
        self.num_rows, self.last_carry = [0] * num_stages, [None] * num_stages
        self.histories = [CarryHistory() for _ in range(num_stages - 1)]

    def keep(self, stage: int, carries: torch.Tensor) -> None:
        """Note the carries `[n, F]`, n > 0, of rows that a stage has just run.

        Args:
            stage: the stage.
            carries: of its new rows, in order.
        """
        self.num_rows[stage] += len(carries)
        self.last_carry[stage] = carries[-1].clone()
        if stage < len(self.histories):
            self.histories[stage].append(carries)

    def forget_from(self, start: int) -> None:
        """Forget the tokens from position `start` on."""
        if start >= self.num_tokens:
            return
        self.num_tokens = start
        self.last_logits = None
        self.num_rows = [max(0, start - 1 - stage) for stage in range(len(self.num_rows))]
        self.last_carry = [None] * len(self.num_rows)
        for stage, history in enumerate(self.histories):
            history.cut(self.num_rows[stage])
            self.last_carry[stage] = history.last
