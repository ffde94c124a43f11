"""Members that draft what they are told to, and keep what they were told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from specdec import SamplingParams
from specdec.interfaces import (
    NEEDED_CAPABILITIES,
    Capability,
    Draft,
    DraftSampling,
    FinishReason,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetInfo,
)
from specdec_plugin_composite import CompositeConfig, CompositeProposer, MemberConfig

VOCAB = 16
HIDDEN = 2
INFO = TargetInfo(VOCAB, HIDDEN, 4, 64, torch.float32, torch.device("cpu"), (), None)


class Scripted(Proposer):
    """Drafts `tokens`; class attributes are set by `scripted`."""

    name = "scripted"
    tokens: Sequence[int] = ()
    parents: Sequence[int] | None = None
    confidence: Sequence[float] | None = None
    has_q = False
    held = 0
    error: BaseException | None = None
    error_in_finish: BaseException | None = None

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self.heard: list[int] = []
        self.states: list[float] = []
        self.asked: list[int] = []
        self.judged: list[tuple[int, int]] = []

    def propose(self, batch: ProposeBatch) -> Draft:
        """Keep the new tokens of one request, and draft."""
        if self.error is not None:
            raise self.error
        (start,), (most,) = batch.starts, batch.max_nodes
        assert start <= len(self.heard) or not batch.counts[0]  # nothing is told of what was lost
        self.heard[start:] = batch.new_token_ids.tolist()
        if batch.hidden_states is not None:
            self.states[start:] = batch.hidden_states[:, 0].tolist()
        self.asked.append(most)
        self.judged.append((batch.last_num_drafted[0], batch.last_num_accepted[0]))
        row = list(self.tokens[:most])
        draft = Draft.from_lists(
            [row],
            None if self.parents is None else [list(self.parents[: len(row)])],
            confidence=None if self.confidence is None else [list(self.confidence[: len(row)])],
        )
        if not self.has_q or not row:
            return draft
        probs = torch.full((1, len(row) + 1, VOCAB), 1 / VOCAB)
        return Draft(draft.token_ids, draft.parents, DraftSampling.IID, probs)

    def resume(self, request_id: str, token_ids: Any) -> int:
        """Return what it is told to hold."""
        self.heard[:] = token_ids[: self.held].tolist()
        self.states[:] = [0.0] * self.held
        return self.held

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Forget."""
        if self.error_in_finish is not None:
            raise self.error_in_finish
        self.heard.clear()
        self.states.clear()


def scripted(
    *tokens: int, name: str = "scripted", needs: Sequence[Capability] = (), **script: Any
) -> type[Scripted]:
    """Return a class of members that draft `tokens`."""
    given = frozenset(needs)
    if script.get("has_q"):
        given |= {Capability.DRAFT_PROBS}
    if script.get("parents") is not None:
        given |= {Capability.TREE}
    assert given <= NEEDED_CAPABILITIES | {Capability.TREE, Capability.DRAFT_PROBS, Capability.LATE_DRAFTS}
    return type("Made", (Scripted,), {"name": name, "tokens": tokens, "capabilities": given, **script})


def composite_of(policy: str, *members: type[Scripted], k: int = 8, **keys: Any) -> CompositeProposer:
    """Return a composite of members that draft at most `k` tokens."""
    made = tuple(MemberConfig(member, ProposerConfig(num_speculative_tokens=k)) for member in members)
    config = CompositeConfig(num_speculative_tokens=k, proposers=made, policy=policy, **keys)
    return CompositeProposer(config, INFO)


def members_of(composite: CompositeProposer) -> list[Any]:
    """Return the scripted members."""
    return [member.proposer for member in composite._members]


def batch_of(
    text: Sequence[int],
    start: int,
    last: tuple[int, int] = (0, 0),
    most: int = 8,
    *,
    states: bool = False,
    params: SamplingParams | None = None,
) -> ProposeBatch:
    """Return a batch of one request, `a`, whose tokens from `start` on are new; the state of a token is its id."""
    new = np.array(text[start:], np.int32)
    hidden = torch.tensor(text[start:], dtype=torch.float32)[:, None].expand(-1, HIDDEN) if states else None
    return ProposeBatch(
        ("a",), [most], [len(text)], [2], [start], [len(new)], new, [last[0]], [last[1]],
        (SamplingParams() if params is None else params,), None, lambda row: np.array(text, np.int32),
        hidden_states=hidden, has_hidden=None if hidden is None else torch.ones(len(new), dtype=torch.bool),
    )  # type: ignore[arg-type]  # fmt: skip
