"""A proposer that drafts nothing and records the target's hidden states, so that training need not compute them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from specdec import Draft, ProposeBatch, Proposer
from specdec.interfaces import Capability, FinishReason, ProposerConfig, TargetInfo

CLASS_PATH = f"{__name__}.StateRecorder"
"""The `method` of this proposer in `speculative_config`."""


@dataclass(frozen=True)
class RecordedText:
    """A text and the target's states of it."""

    ids: tuple[int, ...]
    """`[L]` prompt and answer."""
    states: tuple[Tensor, ...]
    """`[L - 1, H]` each: the final norm's output, then the inputs of the aux layers, at all positions but the last."""


class StateRecorderConfig(ProposerConfig):
    """Keys of the recorder."""

    aux_layer_ids: tuple[int, ...] = Field((), description="Layers whose inputs are recorded as well.")
    most_bytes: int = Field(
        2**30, description="Maximum size of all recorded states; later texts are left out."
    )


@dataclass
class _Running:
    """The delivered tokens of a request and their states."""

    ids: list[int] = field(default_factory=list)
    pieces: list[tuple[Tensor, ...]] = field(default_factory=list)
    """`[n, H]` each: row j is the state that predicted token j."""

    def cut(self, count: int) -> None:
        """Keep the first `count` tokens only."""
        if count < len(self.ids):
            joined = _joined(self.pieces)
            self.pieces = [tuple(part[:count] for part in joined)] if count else []
            del self.ids[count:]


class StateRecorder(Proposer):
    """Records the states of all texts that end by themselves or at their length limit; drafts nothing.

    Requests whose sampling parameters turn speculation off are not recorded.
    """

    name: ClassVar[str] = "state_recorder"
    Config: ClassVar[type[ProposerConfig]] = StateRecorderConfig
    capabilities = frozenset({Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES})

    def __init__(self, config: StateRecorderConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self.aux_layer_ids = config.aux_layer_ids
        if not config.aux_layer_ids:
            self.capabilities = frozenset({Capability.HIDDEN_STATES})
        self._room = config.most_bytes
        self._running: dict[str, _Running] = {}
        self.texts: list[RecordedText] = []
        """What was recorded, in the order in which the texts ended."""
        self.num_left_out = 0
        """Number of texts that did not fit into `most_bytes`."""

    def propose(self, batch: ProposeBatch) -> Draft:
        """Keep the states of the new tokens."""
        assert batch.hidden_states is not None
        states = [state.clone() for state in (batch.hidden_states, *batch.aux_hidden_states)]
        end = 0
        rows = zip(batch.request_ids, batch.starts, batch.counts, batch.sampling_params, strict=True)
        for name, start, count, params in rows:
            first, end = end, end + count
            if params.speculative is False:
                continue
            running = self._running.setdefault(name, _Running())
            running.cut(start)
            if count and start == len(running.ids):
                running.ids += batch.new_token_ids[first:end].tolist()
                running.pieces.append(tuple(state[first:end] for state in states))
        return Draft.empty(batch.batch_size)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Record the states of texts that are complete."""
        for name in request_ids:
            running = self._running.pop(name, None)
            if (
                running is None
                or reason not in (FinishReason.STOP, FinishReason.LENGTH)
                or len(running.ids) < 2
            ):
                continue
            states = tuple(part[1:].clone() for part in _joined(running.pieces))
            size = sum(part.nbytes for part in states)
            if size > self._room:
                self.num_left_out += 1
                continue
            self._room -= size
            self.texts.append(RecordedText(tuple(running.ids), states))


def _joined(pieces: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Return the states of consecutive pieces as one piece."""
    return tuple(torch.cat(column) for column in zip(*pieces, strict=True))
