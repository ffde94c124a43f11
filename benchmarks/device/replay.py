"""A proposer that knows the text: it drafts what was recorded, with a wrong token now and then."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from specdec import Draft, FinishReason, ProposeBatch, Proposer, ProposerConfig, TargetInfo

METHOD = "device.replay.ReplayProposer"
"""The value of `method`."""
_FILLER = 0


class ReplayConfig(ProposerConfig):
    """Where the text comes from and how much of it is drafted right."""

    recording: str = Field(
        description="JSON file: the new tokens of each request, whose name is its index in the list."
    )
    share_right: float = Field(
        0.7, ge=0.0, le=1.0, description="Probability that a drafted token is the recorded one."
    )


class ReplayProposer(Proposer):
    """Drafts from a recording; where that has ended, tokens that mean nothing, so that drafts stay as long.

    Which tokens are wrong depends on request and position alone: every run verifies the same drafts.
    """

    name = "replay"
    api_version = 1
    Config = ReplayConfig

    def __init__(self, config: ReplayConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        recorded: list[list[int]] = json.loads(Path(config.recording).read_text(encoding="utf-8"))
        self._drafts = [
            _spoiled(tokens, request, config.share_right, target.vocab_size)
            for request, tokens in enumerate(recorded)
        ]

    def propose(self, batch: ProposeBatch) -> Draft:
        """Draft what follows the tokens that each request has."""
        drafts = []
        for row, request_id in enumerate(batch.request_ids):
            most = batch.max_nodes[row]
            first = batch.num_tokens[row] - batch.num_prompt_tokens[row]
            draft = self._drafts[int(request_id)][first : first + most]
            drafts.append(draft + [_FILLER] * (most - len(draft)))
        return Draft.from_lists(drafts)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """There is no state to drop."""


def _spoiled(tokens: Sequence[int], request: int, share_right: float, vocab_size: int) -> list[int]:
    draws = random.Random(request)
    return [
        token if draws.random() < share_right else (token + 1 + draws.randrange(vocab_size - 1)) % vocab_size
        for token in tokens
    ]
