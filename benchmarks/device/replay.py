"""A proposer that drafts recorded tokens, with some of them replaced by wrong ones."""

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
    """The recording and the share of it that is drafted correctly."""

    recording: str = Field(
        description="JSON file: the new tokens of each request, whose name is its index in the list."
    )
    share_right: float = Field(
        0.7, ge=0.0, le=1.0, description="Probability that a drafted token is the recorded one."
    )


class ReplayProposer(Proposer):
    """Drafts from a recording; after its end it pads with filler tokens, so drafts keep their length.

    Which tokens are wrong depends only on request and position, so every run verifies the same drafts.
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
        """Draft the recorded tokens that follow each request's tokens."""
        drafts = []
        for row, request_id in enumerate(batch.request_ids):
            most = batch.max_nodes[row]
            first = batch.num_tokens[row] - batch.num_prompt_tokens[row]
            draft = self._drafts[int(request_id)][first : first + most]
            drafts.append(draft + [_FILLER] * (most - len(draft)))
        return Draft.from_lists(drafts)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Do nothing; there is no per-request state."""


def _spoiled(tokens: Sequence[int], request: int, share_right: float, vocab_size: int) -> list[int]:
    draws = random.Random(request)
    return [
        token if draws.random() < share_right else (token + 1 + draws.randrange(vocab_size - 1)) % vocab_size
        for token in tokens
    ]
