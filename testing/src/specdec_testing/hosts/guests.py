"""Proposers that run in a host under test: those that note what they are told, and one that does what none may."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field

from specdec import Capability, Draft, FinishReason, ProposeBatch, Proposer, ProposerConfig, TargetInfo
from specdec_testing.support.repeats import repeats


class GuestConfig(ProposerConfig):
    """Where a guest writes; engines run proposers in processes of their own."""

    folder: Path = Field(description="A folder that exists.")


class Recorder(Proposer):
    """Drafts what followed the newest token when it last occurred, and notes all calls, a line of JSON each."""

    name = "recorder"
    Config: ClassVar[type[ProposerConfig]] = GuestConfig

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        assert isinstance(config, GuestConfig)
        self.folder = config.folder

    def note(self, call: dict[str, Any]) -> None:
        """Write one call."""
        with (self.folder / "calls").open("a", encoding="utf-8") as file:
            file.write(json.dumps(call) + "\n")

    def propose(self, batch: ProposeBatch) -> Draft:
        """Note a call and draft."""
        names = ("request_ids", "max_nodes", "num_tokens", "num_prompt_tokens", "starts", "counts")
        call: dict[str, Any] = {name: [*getattr(batch, name)] for name in names}
        call |= {"drafted": [*batch.last_num_drafted], "accepted": [*batch.last_num_accepted]}
        self.note(call | {"new": batch.new_token_ids.tolist()})
        return repeats(batch)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Note who ended."""
        self.note({"finished": [*request_ids], "reason": reason.value})


class StateRecorder(Recorder):
    """Keeps the final hidden states of each request too, and writes them when it ends: `[n, H]` for its first n tokens."""

    name = "state_recorder"
    capabilities = frozenset({Capability.HIDDEN_STATES})

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._states: dict[str, list[torch.Tensor]] = {}
        self._num_written = 0

    def propose(self, batch: ProposeBatch) -> Draft:
        """Keep the states, then note the call and draft."""
        assert batch.hidden_states is not None
        parts = batch.hidden_states.split([*batch.counts])
        for name, start, rows in zip(batch.request_ids, batch.starts, parts, strict=True):
            held = torch.cat([rows[:0], *self._states.get(name, ())])[:start]
            self._states[name] = [held, rows.clone()]
        return super().propose(batch)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Write the states of who ended."""
        super().finish(request_ids, reason)
        for name in request_ids:
            if name in self._states:
                states = torch.cat(self._states.pop(name)).float().cpu()
                torch.save((name, states), self.folder / f"states{self._num_written}")
                self._num_written += 1


class Hostile(Proposer):
    """Makes one of eight mistakes in every second call, each in its turn."""

    name = "hostile"

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._num_calls = 0

    def propose(self, batch: ProposeBatch) -> Draft:
        """Draft nonsense, or do worse."""
        turn, is_wrong = divmod(self._num_calls, 2)
        self._num_calls += 1
        return MISTAKES[turn % len(MISTAKES)](batch) if is_wrong else _nonsense(batch)


def _nonsense(batch: ProposeBatch) -> Draft:
    return Draft.from_lists([[1] * most for most in batch.max_nodes])


def _raises(batch: ProposeBatch) -> Draft:
    raise RuntimeError("no")


def _nothing(batch: ProposeBatch) -> Draft:
    return None  # type: ignore[return-value]  # that is the mistake


def _outside(batch: ProposeBatch) -> Draft:
    return Draft.from_lists([[10**6] * most for most in batch.max_nodes])


def _negative(batch: ProposeBatch) -> Draft:
    return Draft(token_ids=torch.full((batch.batch_size, 3), -5))


def _too_many(batch: ProposeBatch) -> Draft:
    return Draft.from_lists([[1] * 300 for _ in batch.max_nodes])


def _too_few_rows(batch: ProposeBatch) -> Draft:
    return Draft.from_lists([[1] * most for most in batch.max_nodes][:-1])


def _writes(batch: ProposeBatch) -> Draft:
    for row in range(batch.batch_size):
        ids = batch.token_ids(row)
        ids.flags.writeable = True
        ids[:] = 0
    return _nonsense(batch)


def _slow(batch: ProposeBatch) -> Draft:
    time.sleep(0.4)
    return _nonsense(batch)


MISTAKES: tuple[Callable[[ProposeBatch], Draft], ...] = (
    *(_raises, _nothing, _outside, _negative),
    *(_too_many, _too_few_rows, _writes, _slow),
)
