"""The state of one request in the cache of a draft model or head."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from specdec.interfaces import TokenIds


@dataclass(slots=True)
class RequestState:
    """Which committed tokens have rows in the cache, and what drafting continues from."""

    num_tokens: int = 0
    """Number of committed tokens that have been processed."""
    num_ids: int = 0
    """Length of these tokens in the draft's ids; it differs if a target token maps to several draft tokens."""
    drafted: list[int | None] = field(default_factory=list)
    """Target ids of drafted tokens whose rows follow, one row each, and are kept if they are accepted; None for the tokens of a
    chain that the host has not read."""
    carries: dict[int, torch.Tensor] = field(default_factory=dict)
    """For heads by stage, the `[F]` carry of the last row: the feature of the next token in the following stage."""
    is_ahead: bool = False
    """Whether a loop has run tokens behind these, those of a verdict that the host had not read."""
    logits: torch.Tensor | None = None
    """`[1, V']` of the last token, in parallel drafting followed by those of mask tokens; None if they are not known."""

    def hold(self, num_tokens: int, num_ids: int) -> None:
        """Count the rows of other tokens than before; logits are no longer those of the last one."""
        self.num_tokens, self.num_ids, self.logits = num_tokens, num_ids, None

    def keep_accepted(self, committed: TokenIds, last_num_accepted: int) -> None:
        """Keep the rows of drafted tokens that are among all committed ones `[n]`, and drop the others.

        Of tokens that were not read, as many are as were accepted of the last draft.
        """
        if not self.drafted:
            return
        committed = committed[self.num_tokens : self.num_tokens + len(self.drafted)]
        num_accepted = 0
        for drafted, token in zip(self.drafted, committed.tolist(), strict=False):
            is_accepted = num_accepted < last_num_accepted if drafted is None else drafted == token
            if not is_accepted:
                break
            num_accepted += 1
        self.drafted = []
        if num_accepted:
            self.hold(self.num_tokens + num_accepted, self.num_ids + num_accepted)
