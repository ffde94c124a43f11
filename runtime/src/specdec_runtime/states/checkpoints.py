"""Decides which rows layers with states run in a pass, from which state, and which states are kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from specdec_runtime.interfaces.forward import PackedBatch, Segment

Inputs = dict[int, list[torch.Tensor]]
"""Arguments `[1, n, ...]` of every module that keeps states, for n rows, by the number of the module."""


@dataclass(slots=True)
class Kept:
    """What is kept of one request: states at two positions at most, and inputs of the rows that may be rolled back."""

    places: tuple[int, int]
    states: dict[int, int | None] = field(default_factory=dict)
    """Place of the state after that many tokens; None for the state before the first token."""
    inputs_from: int = 0
    """Number of tokens before the first row of `inputs`."""
    num_inputs: int = 0
    """Number of rows of `inputs`."""
    inputs: Inputs = field(default_factory=dict)
    num_certain: int = 0
    """Number of tokens that the last pass ran and that cannot be rejected."""
    last_snapshot: int | None = None
    """Slot of the newest snapshot that was taken while decoding; a newer one replaces it."""


@dataclass(slots=True)
class StateSpan:
    """Consecutive rows of one request, and the states before and after them."""

    rows: slice
    """Rows of the pass, or of `inputs`."""
    inputs: Inputs | None
    """Kept inputs that are run again; None for rows of the pass."""
    source: int | None
    """Place of the state before the rows; None if they begin a text."""
    targets: list[int]
    """Places of the state after them."""

    @property
    def kind(self) -> tuple[int, bool, bool]:
        """Pieces of one kind run together."""
        return self.rows.stop - self.rows.start, self.source is None, self.inputs is None


class Group:
    """Pieces of one kind, which run together.

    Args:
        spans: the pieces.
        device: where the states are.
    """

    def __init__(self, spans: list[StateSpan], device: torch.device) -> None:
        self.spans = spans
        self.num_rows, self.begins_texts, self.is_of_pass = spans[0].kind
        self.sources = None
        """`[B]` places of the states before the pieces; None if they begin texts."""
        if not self.begins_texts:
            self.sources = torch.tensor([span.source for span in spans], device=device)
        stored = [(row, target) for row, span in enumerate(spans) for target in span.targets]
        self.stored = torch.tensor(stored, device=device).unbind(1) if stored else None
        """`[n]` pieces whose states are stored, and `[n]` places where."""


@dataclass(slots=True)
class Plan:
    """What the layers with states run in one pass."""

    stages: list[list[Group]]
    """Groups of each stage, which run after those of the stages before."""
    keeps: list[tuple[slice, Kept]]
    """Rows of the pass whose inputs are kept."""


class Checkpoints:
    """Keeps track of the states of requests, and of snapshots at the ends of blocks, from which cached prefixes continue.

    Args:
        num_requests: maximum number of requests with states.
        num_snapshots: maximum number of snapshots; the least recently used one makes room.
        block_size: tokens per block of the prefix cache; 0 without, and no snapshots.
        lag: number of last rows of a cached prefix that run again: 1 if a proposer reads their hidden states.
        copy: copies the states of one place to another.
    """

    def __init__(
        self,
        num_requests: int,
        num_snapshots: int,
        block_size: int,
        lag: int,
        copy: Callable[[int, int], None],
    ) -> None:
        self._block_size = block_size
        self._lag = lag
        self._copy = copy
        self._kept: dict[object, Kept] = {}
        self._free = [(2 * index, 2 * index + 1) for index in range(num_requests)]
        self._free_snapshots = list(range(2 * num_requests, 2 * num_requests + num_snapshots))
        self._snapshots: OrderedDict[int, int] = OrderedDict()
        """Place of the state after the row in each of these slots."""
        self._wanted: dict[object, int] = {}
        """Number of tokens after which a snapshot of a request is wanted: a cached prefix ended there without one."""

    def resume(self, owner: object, first_slot: int, num_rows: int) -> int:
        """Give a request the newest state within its `num_rows` cached rows; returns the number of rows before it."""
        slots = [slot for slot in self._snapshots if first_slot <= slot < first_slot + num_rows]
        known = max(slots) + 1 - first_slot if slots else 0
        if known < num_rows and self._block_size and (num_rows + self._lag) % self._block_size == 0:
            self._wanted[owner] = num_rows
        if known:
            kept = self._kept_of(owner)
            self._snapshots.move_to_end(max(slots))
            self._copy(self._snapshots[max(slots)], kept.places[0])
            kept.states = {known: kept.places[0]}
        return known

    def holds(self, owner: object, num_rows: int) -> bool:
        """Return whether a pass of a request can begin after `num_rows` rows."""
        kept = self._kept.get(owner)
        if num_rows == 0 or kept is None:
            return num_rows == 0
        is_among_inputs = kept.inputs_from <= num_rows <= kept.inputs_from + kept.num_inputs
        return num_rows in kept.states or (is_among_inputs and kept.num_inputs > 0)

    def release(self, owner: object) -> None:
        """Forget a request; its snapshots stay."""
        self._wanted.pop(owner, None)
        kept = self._kept.pop(owner, None)
        if kept is not None:
            self._free.append(kept.places)

    def move(self, source: int, destination: int, num_rows: int) -> None:
        """Note that cache rows are copied, whose snapshots move with them: they are found at the new rows only."""
        moved = [
            (slot, place) for slot, place in self._snapshots.items() if source <= slot < source + num_rows
        ]
        for slot, _ in moved:
            del self._snapshots[slot]
        self._forget(destination, destination + num_rows)
        self._snapshots.update((slot - source + destination, place) for slot, place in moved)

    def plan(self, batch: PackedBatch) -> Plan:
        """Return what to run in a pass, and note the states that it leaves."""
        chains: list[list[StateSpan]] = []
        keeps: list[tuple[slice, Kept]] = []
        for segment in batch.segments:
            if segment.owner is None:
                assert segment.num_cached == 0, "a request continues from its states, so a pass must name it"
                rows = slice(segment.row, segment.row + segment.num_rows)
                chains.append([StateSpan(rows, None, None, [])])
            else:
                chains.append(self._continue(segment, keeps))
        stages: list[list[Group]] = []
        for index in range(max(map(len, chains))):
            groups: dict[tuple[int, bool, bool], list[StateSpan]] = {}
            for chain in chains:
                if index < len(chain):
                    groups.setdefault(chain[index].kind, []).append(chain[index])
            stages.append([Group(spans, batch.token_ids.device) for spans in groups.values()])
        return Plan(stages, keeps)

    def _continue(self, segment: Segment, keeps: list[tuple[slice, Kept]]) -> list[StateSpan]:
        """Return the pieces of one request: kept inputs that were accepted, then the rows of the pass."""
        owner, start = segment.owner, segment.num_cached
        kept = self._kept_of(owner)
        if (
            segment.num_drafted == segment.num_rows
            and kept.num_inputs
            and start == kept.inputs_from + kept.num_inputs
        ):
            return self._extend(segment, kept, keeps)
        spans = self._return_to(start, segment, kept)
        place = kept.states[start]
        spare = next(each for each in kept.places if each != place)
        end, certain = start + segment.num_rows, segment.kv_len - segment.num_drafted
        # The state after a long chunk is kept instead of the inputs of all its rows.
        is_split = 0 < segment.num_drafted < segment.num_rows - 1
        self._forget(segment.first_slot + start, segment.first_slot + end)
        cuts = self._snapshots_between(segment, kept, start, certain)
        ends = sorted({*cuts, end, *([certain] if is_split else [])})
        kept.states = {start: place, (certain if is_split else end): spare}
        kept.inputs, kept.num_inputs, kept.num_certain = {}, 0, certain
        if segment.num_drafted:
            kept.inputs_from = certain if is_split else start
            kept.num_inputs = end - kept.inputs_from
            keeps.append(
                (slice(segment.row + kept.inputs_from - start, segment.row + segment.num_rows), kept)
            )
        source, first = place, start
        for last in ends:
            targets = [cuts[last]] if last in cuts else []
            if kept.states.get(last) == spare:
                targets.append(spare)
            rows = slice(segment.row + first - start, segment.row + last - start)
            spans.append(StateSpan(rows, None, source, targets))
            first, source = last, targets[-1] if targets else None
        return spans

    def _extend(self, segment: Segment, kept: Kept, keeps: list[tuple[slice, Kept]]) -> list[StateSpan]:
        """Return the piece of rows that continue a draft, so that nothing is accepted yet: its state alone advances."""
        rows, start = slice(segment.row, segment.row + segment.num_rows), segment.num_cached
        place = kept.states.pop(start)
        assert place is not None, "the state after a draft is kept"
        kept.states[start + segment.num_rows] = place
        kept.num_inputs += segment.num_rows
        keeps.append((rows, kept))
        return [StateSpan(rows, None, place, [place])]

    def _return_to(self, start: int, segment: Segment, kept: Kept) -> list[StateSpan]:
        """Have the state after `start` tokens in `kept.states`; returns the pieces that must run for it."""
        if start == 0:
            kept.states = {0: None}
            return []
        base = max((position for position in kept.states if position <= start), default=-1)
        has_inputs = kept.num_inputs and start <= kept.inputs_from + kept.num_inputs
        assert base == start or (has_inputs and base == kept.inputs_from), (
            f"no state after {start} tokens of a request"
        )
        if base == start and (not has_inputs or start <= kept.num_certain):
            return []
        # Drafted rows up to `start` were accepted.
        spans: list[StateSpan] = []
        first, source = kept.inputs_from, kept.states[kept.inputs_from]
        cuts = self._snapshots_between(segment, kept, kept.num_certain, start)
        ends = sorted({*cuts, *([start] if base < start else [])})
        spare = next(each for each in kept.places if each != source)
        for last in ends:
            targets = [cuts[last]] if last in cuts and not (last == start == base) else []
            if last == start and base < start:
                targets.append(spare)
            if targets:
                rows = slice(first - kept.inputs_from, last - kept.inputs_from)
                spans.append(StateSpan(rows, kept.inputs, source, targets))
                first, source = last, targets[-1]
            else:  # the state after all rows of the last pass
                state = kept.states[start]
                assert state is not None
                self._copy(state, cuts[last])
        if base < start:
            kept.states = {start: spare}
        return spans

    def _kept_of(self, owner: object) -> Kept:
        kept = self._kept.get(owner)
        if kept is None:
            kept = self._kept[owner] = Kept(self._free.pop())
        return kept

    def _snapshots_between(self, segment: Segment, kept: Kept, start: int, end: int) -> dict[int, int]:
        """Return positions behind `start` and up to `end` where snapshots are taken, and their places."""
        size = self._block_size
        if not size:
            return {}
        last = (end + self._lag) // size * size - self._lag
        positions = [last] if last > start else []
        wanted = self._wanted.get(segment.owner, 0)
        if start < wanted <= end:
            positions.append(self._wanted.pop(segment.owner))
        return {position: self._snapshot(segment, kept, position) for position in sorted({*positions})}

    def _snapshot(self, segment: Segment, kept: Kept, position: int) -> int:
        """Return the place of a new snapshot."""
        slot = segment.first_slot + position - 1
        is_decoding = segment.num_rows - segment.num_drafted == 1
        if is_decoding and kept.last_snapshot is not None:
            self._forget(kept.last_snapshot, kept.last_snapshot + 1)
        if not self._free_snapshots:
            self._free_snapshots.append(self._snapshots.popitem(last=False)[1])
        place = self._snapshots[slot] = self._free_snapshots.pop()
        kept.last_snapshot = slot if is_decoding else None
        return place

    def _forget(self, first: int, last: int) -> None:
        """Forget the snapshots of rows that are overwritten."""
        slots = range(first, last)
        for slot in slots if len(slots) < len(self._snapshots) else list(self._snapshots):
            if slot in slots and slot in self._snapshots:
                self._free_snapshots.append(self._snapshots.pop(slot))
