"""Drafts of a proposer on the host that is asked while the device runs the step before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import torch

from specdec.engine.speculation.speculation import Speculation
from specdec.engine.step import Step
from specdec.interfaces.capability import NEEDED_CAPABILITIES, Capability
from specdec.interfaces.device_nodes import DeviceNodes, rows_of
from specdec.interfaces.draft import PADDING_ID, CheckedDraft
from specdec.interfaces.sent import sent_together

_FEW = 4
"""Number of steps of a kind that are measured before kinds are compared."""
_OTHER_EVERY = 64
"""After so many steps of the better kind comes one of the other, so that its speed stays known."""
_WARM_UP = 3
"""Number of steps that are not measured."""
_CHEAP = 0.1
"""The most that a proposer takes of a step if it may be asked late: a dear one is left to `adaptive`, which may not ask it."""
_MOST_COUNTED = 32
"""Number of observations of which a mean consists, about."""


def aligned(
    drafts: torch.Tensor,
    lengths: torch.Tensor,
    token_ids: torch.Tensor,
    num_accepted: torch.Tensor,
    width: int,
) -> torch.Tensor:
    """Return what is left of drafts from text that is one step old, once a verdict has emitted their first tokens.

    A draft is left if the accepted tokens are its first ones; the token after these, which verification added, may be another
    one. Where nothing is left there is the last emitted token. The host does not wait.

    Args:
        drafts: `[B, W]` int64, behind the text without the emitted tokens, W at least N + `width`.
        lengths: `[B]` int64 number of tokens of each draft.
        token_ids: `[B, N]` int64 emitted tokens.
        num_accepted: `[B]` int64 accepted nodes, one less than tokens are emitted.
        width: number of tokens to return.

    Returns:
        `[B, width]` token ids.
    """
    columns = torch.arange(drafts.shape[1], device=drafts.device)
    is_guessed = (drafts[:, : token_ids.shape[1]] == token_ids) | (
        columns[: token_ids.shape[1]] >= num_accepted[:, None]
    )
    places = num_accepted[:, None] + 1 + columns[:width]
    is_left = is_guessed.all(1, keepdim=True) & (places < lengths[:, None])
    return torch.where(is_left, drafts.gather(1, places), token_ids.gather(1, num_accepted[:, None]))


def num_aligned(draft: Sequence[int], token_ids: Sequence[int], width: int) -> int:
    """Return how many tokens of a late draft `aligned` left, of at most `width`, once all of `token_ids` were emitted."""
    num_guessed = max(0, len(token_ids) - 1)
    is_left = list(draft[:num_guessed]) == list(token_ids[:num_guessed])
    return max(0, min(width, len(draft) - len(token_ids))) if is_left else 0


@dataclass
class _Mean:
    """A mean of which recent observations count most."""

    value: float = 0.0
    count: int = 0

    def observe(self, value: float) -> None:
        self.count += 1
        self.value += (value - self.value) / min(self.count, _MOST_COUNTED)


@dataclass
class _Kind:
    """Steps whose drafts were asked for late, or in time."""

    tokens: _Mean = field(default_factory=_Mean)
    seconds: _Mean = field(default_factory=_Mean)

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens.value / self.seconds.value if self.seconds.value else 0.0


@dataclass
class _Measured:
    """What is known of steps of about one batch size."""

    late: _Kind = field(default_factory=_Kind)
    in_time: _Kind = field(default_factory=_Kind)
    asking_s: _Mean = field(default_factory=_Mean)
    num_steps: int = 0
    num_since: int = 0

    @property
    def is_cheap(self) -> bool:
        """Whether asking the proposer hardly takes time."""
        return self.asking_s.value <= _CHEAP * self.in_time.seconds.value


class LateDrafts:
    """Decides whether a proposer on the host is asked before it knows the tokens of the step that runs, and asks it.

    It then drafts behind the text without these tokens, longer by as many as may be emitted, and the device takes what is left
    of the draft (`aligned`). So nothing waits for the host. Copied text survives that; but fewer tokens are accepted, as a
    draft from all of the text would know better. Which of both is faster is measured while requests run.

    Args:
        speculation: of the engine.
    """

    def __init__(self, speculation: Speculation) -> None:
        self._speculation = speculation
        self._measured: dict[int, _Measured] = {}

    @classmethod
    def of(cls, speculation: Speculation | None) -> Self | None:
        """Return those of a proposer that drafts point masses from committed ids alone; None for others, or none."""
        if speculation is None:
            return None
        others = NEEDED_CAPABILITIES | {Capability.REQUEST_TABLE, Capability.DRAFT_PROBS}
        return None if speculation.capabilities & others else cls(speculation)

    def draft(self, step: Step, last: Step) -> CheckedDraft | None:
        """Return the drafts of a step behind one whose verdict is not read; None if there are none."""
        pending, scores = last.pending, last.scores
        assert pending is not None and scores is not None and step.behind is not None
        caps = [
            max(0, min(row.cap, row.sequence.max_num_tokens - row.num_tokens - row.slack - 1))
            for row in step.rows
        ]
        most = [cap + row.slack + 1 if cap else 0 for cap, row in zip(caps, step.rows, strict=True)]
        if Capability.LATE_DRAFTS not in self._speculation.capabilities:
            most = [min(each, self._speculation.num_speculative_tokens) for each in most]
        late = self._speculation.draft_late(step, most)
        rows = [] if late is None else _chains(late.read())[: len(step.rows)]
        counts = [max(0, min(cap, len(row) - 1)) for cap, row in zip(caps, rows, strict=True)] if rows else []
        if late is None or not any(counts):
            return None
        tokens = rows_of(pending.token_ids, step.behind.rows)
        width = max(counts)
        padded = np.full((len(rows), max(tokens.shape[1] + width, *map(len, rows))), PADDING_ID, np.int64)
        for place, row in zip(padded, rows, strict=True):
            place[: len(row)] = row
        drafts, lengths = sent_together([padded, np.array([*map(len, rows)])], tokens.device)
        num_accepted = rows_of(pending.num_accepted, step.behind.rows)
        nodes = aligned(drafts, lengths, tokens, num_accepted, width)
        there = DeviceNodes(nodes[None], counts, scores.logits.shape[1])
        return replace(late, rows=((),) * len(rows), parents=None, confidence=None, device_nodes=there)

    def pays(self, step: Step) -> bool:
        """Return whether to ask late for the step after `step`."""
        measured = self._of(step)
        late, in_time = measured.late, measured.in_time
        if not measured.is_cheap:
            return False
        if late.tokens.count < _FEW or in_time.tokens.count < _FEW:
            return late.tokens.count < _FEW
        is_better = late.speed > in_time.speed
        measured.num_since += 1
        if measured.num_since >= _OTHER_EVERY:
            measured.num_since = 0
            return not is_better
        return is_better

    def observe(self, step: Step) -> bool:
        """Record a step; returns whether it was one in which a cheap proposer might have drafted, and did not."""
        is_typical = all(row.is_sampled and row.chunk == 1 for row in step.rows)
        if not is_typical or not any(row.cap for row in step.rows):
            return False
        measured = self._of(step)
        measured.num_steps += 1
        if measured.num_steps > _WARM_UP:
            kind = measured.late if step.is_late else measured.in_time
            kind.tokens.observe(sum(len(row.emitted) for row in step.rows))
            kind.seconds.observe(step.seconds)
            if not step.is_late:
                measured.asking_s.observe(step.propose_s)
        return measured.is_cheap and not any(row.num_nodes for row in step.rows)

    def _of(self, step: Step) -> _Measured:
        return self._measured.setdefault(len(step.rows).bit_length(), _Measured())


def _chains(draft: CheckedDraft) -> list[tuple[int, ...]]:
    """Return the rows of a draft; of a tree the chain that it begins with."""
    if draft.parents is None:
        return [*draft.rows]
    rows = zip(draft.rows, draft.parents, strict=True)
    return [row[: (*(a == n - 1 for n, a in enumerate(above)), False).index(False)] for row, above in rows]
