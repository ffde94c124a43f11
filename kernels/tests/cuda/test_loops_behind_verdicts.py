"""Draft loops that take their numbers from the verdict on their last draft: what they run, and when they are sent numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from speccheck.recorder import Rerun, StandInAttention

from specdec.interfaces import NeedsTokens, NoiseKeys, PassMemory, VerdictOffsets
from specdec_kernels.cuda.graphs import DraftGraphs
from specdec_kernels.cuda.graphs.static_loop import RecordedLoop
from specdec_kernels.cuda.graphs.static_start import Reads
from specdec_runtime.interfaces import ChainRules, ChainWork, NewRows, PackedBatch

CPU = torch.device("cpu")
NUM_IDS, STEPS, PLACES = 24, 3, VerdictOffsets(40, 46, 4, 90)
ROW_STARTS = [0, 16, 32]
FIRST_SLOTS, CACHED = [0, 128, 256], [5, 40, 9]
RULES = ChainRules(NUM_IDS)
TREES = ChainRules(NUM_IDS, width=2, num_nodes=6)
MASKS = ChainRules(NUM_IDS, mask_id=23)
BLOCKS = ChainRules(NUM_IDS, mask_id=23, skips_last=True)
VERDICTS = [[1, 3, 0], [3, 3, 3], [0, 0, 2], [2, 0, 1], [0, 3, 0]]


class Passes:
    """Stands in for a model: says what it saw."""

    def __init__(self, backend: StandInAttention) -> None:
        self.backend, self.seen = backend, list[list[list[int]]]()

    def __call__(self, batch: PackedBatch, features: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        rows = self.backend.rows
        assert rows is not None
        numbers = batch.token_ids, batch.positions, rows.slots, rows.context_lens, rows.query_starts
        self.seen.append([part.tolist() for part in numbers])
        given = 0.0 if features is None else features.sum(1, keepdim=True)
        mixed = batch.token_ids[:, None] * 7.0 + batch.positions[:, None] * 3.0 + torch.arange(NUM_IDS) * 5.0
        logits = 2.0 * torch.sin(mixed + given)
        logits = logits if batch.logits_rows is None else logits[batch.logits_rows]
        return (logits,) if features is None else (logits, features * 0.5 + batch.token_ids[:, None])


class Context:
    """Stands in for a head that reads the target's states of a text: says what it was given."""

    is_causal = False

    def __init__(self, seen: list[list[list[int]]]) -> None:
        self._seen = seen

    def rows(self, states: tuple[torch.Tensor, ...], positions: torch.Tensor):
        return [(states[0][:, None], positions[:, None, None])]

    def finish(self, logits: torch.Tensor) -> torch.Tensor:
        return 2.0 * logits

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        is_own = slots >= 0
        self._seen.append([part[is_own].flatten().tolist() for part in (keys, values, slots)])


@dataclass
class Loop:
    """A recorded loop of three requests, and the texts that it drafts for."""

    graphs: DraftGraphs
    passes: Passes
    memory: PassMemory | None
    most_new: int
    rules: ChainRules
    num_tokens: np.ndarray
    counts: np.ndarray
    tokens: list[list[int]]
    ends: list[int]
    states: torch.Tensor
    """`[64, 4]` of the last pass of the target."""
    verdict: VerdictOffsets | None = None
    """Where the last verdict is; None before there is one."""

    def depths(self) -> list[int]:
        return [max(1, min(STEPS, end - n - 1)) for end, n in zip(self.ends, self.num_tokens, strict=True)]

    def asked(self) -> tuple[NewRows, ChainWork]:
        """What the next draft is asked for."""
        new = [row[-count:] for row, count in zip(self.tokens, self.counts, strict=True)]
        ids, is_head = (
            np.array([token for row in new for token in row]),
            reads_states(self.most_new, self.rules),
        )
        spans = zip(ROW_STARTS, self.counts.tolist(), strict=True)
        states = (
            (torch.cat([self.states[start : start + count] for start, count in spans]),) if is_head else ()
        )
        keys = NoiseKeys(np.array([3, 4, 5]), np.zeros(3, np.int64), self.num_tokens.copy())
        cached = (self.num_tokens - self.counts - is_head).tolist()
        work = ChainWork(
            FIRST_SLOTS,
            cached,
            STEPS,
            [0.7, 0.0, 1.1],
            keys,
            self.rules,
            (),
            self.depths(),
            self.ends,
            self.verdict,
        )
        return NewRows(ids, self.counts.tolist(), states), work

    def asked_behind(self) -> tuple[NewRows, ChainWork]:
        """What it is asked for behind the last draft, before the host has the verdict on that."""
        _, work = self.asked()
        cached = [n + count for n, count in zip(work.num_cached, self.counts.tolist(), strict=True)]
        behind = replace(work, num_cached=cached, verdict=PLACES, is_unread=True)
        return NewRows(np.zeros(0, np.int64), [0] * 3), behind

    def judge(self, counts: list[int], turn: int) -> None:
        """Take in a verdict, which verification also leaves on the device."""
        depths = self.depths()
        self.states = torch.arange(256.0).view(64, 4) / 99.0 + turn
        counts = [min(pair) for pair in zip(counts, depths, strict=True)]
        emitted = [[(9 * turn + 5 * row + i) % NUM_IDS for i in range(STEPS + 1)] for row in range(3)]
        if self.memory is not None:
            self.memory.numbers[PLACES[0] : PLACES[0] + 3] = torch.tensor(counts)
            self.memory.numbers[PLACES[1] : PLACES[1] + 3 * PLACES[2]] = torch.tensor(emitted).flatten()
            self.memory.numbers[PLACES.row_starts :][:3] = torch.tensor(ROW_STARTS)
            self.memory.states = torch.stack((self.states, self.states))
            self.verdict = PLACES
        left = [min(n, max(0, depth + 1 - self.most_new)) for n, depth in zip(counts, depths, strict=True)]
        self.tokens = [row[: n + 1] for row, n in zip(emitted, counts, strict=True)]
        self.num_tokens = self.num_tokens + counts + 1
        self.counts = np.array(counts) + 1 - left


def reads_states(most_new: int, rules: ChainRules) -> bool:
    """Whether a loop is that of a head."""
    return rules.skips_last or (most_new > 2 and rules.mask_id is None)


def loop(most_new: int, rules: ChainRules, *, is_told: bool, ends: list[int]) -> Loop:
    backend, memory = StandInAttention(), PassMemory(CPU) if is_told else None
    passes, is_head = Passes(backend), reads_states(most_new, rules)
    head = (torch.empty(1, 4), Reads(lambda hidden, aux: hidden)) if is_head else (None, None)
    graphs = DraftGraphs(passes, Rerun(), backend, 512, 512, CPU, *head, memory)
    if rules.skips_last:
        context = Context(passes.seen)
        graphs = DraftGraphs(
            passes, Rerun(), backend, 512, 512, CPU, None, Reads(context=context, write=context.write), memory
        )
    keys = NoiseKeys(*np.zeros((3, 1), np.int64))
    states = (torch.empty(0, 4),) if is_head else ()
    example = (
        NewRows(np.zeros(most_new, np.int64), [most_new], states),
        ChainWork([0], [0], STEPS, [0.0], keys, rules),
    )
    graphs.prepare([(4, 256), (4, 2048)], 16, *example)
    start = np.array(CACHED) + 1 + is_head
    tokens = [[7], [8], [9]]
    ones = np.ones(3, np.int64)
    return Loop(graphs, passes, memory, most_new, rules, start, ones, tokens, ends, torch.ones(64, 4))


@pytest.fixture
def sends(monkeypatch: pytest.MonkeyPatch) -> list[RecordedLoop]:
    """The loops that were sent numbers."""
    sent, send = list[RecordedLoop](), RecordedLoop.send

    def counting(self: RecordedLoop, *args: object) -> None:
        sent.append(self)
        send(self, *args)

    monkeypatch.setattr(RecordedLoop, "send", counting)
    return sent


KINDS = {
    "target": (1, RULES),
    "model": (2, RULES),
    "head": (STEPS + 1, RULES),
    "tree": (STEPS + 1, TREES),
    "masks": (STEPS + 1, MASKS),
    "block": (STEPS + 1, BLOCKS),
}


@pytest.mark.parametrize("ends", [[200, 200, 200], [200, 49, 18]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_is_what_would_have_been_sent(kind: str, ends: list[int], sends) -> None:
    own = loop(*KINDS[kind], is_told=False, ends=ends)
    following = loop(*KINDS[kind], is_told=True, ends=ends)
    for turn, counts in enumerate(VERDICTS):
        drafts = []
        for each in (own, following):
            each.passes.seen.clear()
            drafts.append(each.graphs.draft_after(*each.asked()))
            each.judge(counts, turn)
        assert following.passes.seen == own.passes.seen
        assert torch.equal(drafts[0].token_ids, drafts[1].token_ids)
        assert drafts[0].token_ids.any()
    assert own.graphs.num_plain == following.graphs.num_plain == 0
    # Numbers are sent until it is known where a verdict will be.
    assert len(sends) == len(VERDICTS) + 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_behind_a_verdict_that_is_not_read_is_that_of_the_host(kind: str, sends) -> None:
    """Whatever was accepted, loop after loop; the host then sends numbers for the first draft that it knows all of."""
    own, ahead = (loop(*KINDS[kind], is_told=is_told, ends=[200] * 3) for is_told in (False, True))
    begun: dict[int, torch.Tensor] = {}
    for turn, counts in enumerate(VERDICTS):
        wanted = own.graphs.draft_after(*own.asked()).token_ids
        got = begun[turn] if turn in begun else ahead.graphs.draft_after(*ahead.asked()).token_ids
        assert torch.equal(got, wanted)
        behind = ahead.asked_behind()
        own.judge(counts, turn)
        ahead.judge(counts, turn)
        if turn in (1, 2):
            begun[turn + 1] = ahead.graphs.draft_after(*behind).token_ids.clone()
    assert ahead.graphs.num_replays == len(VERDICTS)
    assert ahead.graphs._last is not None
    assert len([each for each in sends if each is ahead.graphs._last[0]]) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_behind_a_bound_is_recorded_too(kind: str) -> None:
    made = loop(*KINDS[kind], is_told=False, ends=[999] * 3)
    made.num_tokens = np.array([254, 40, 9])
    made.graphs.draft_after(*made.asked())
    assert (made.graphs.num_replays, made.graphs.num_plain) == (1, 0)


CHANGES: dict[str, Callable[[ChainWork], ChainWork]] = {
    "no verdict": lambda work: replace(work, verdict=None),
    "another place": lambda work: replace(work, verdict=PLACES._replace(num_accepted=41)),
    "a slot": lambda work: replace(work, first_slots=[16, 128, 256]),
    "a deeper draft": lambda work: replace(work, num_steps=STEPS + 1, depths=[3, 4, 3]),
    "too many rows": lambda work: replace(work, num_cached=[5, 2040, 9]),
}


@pytest.mark.parametrize("is_unread", [False, True], ids=["read", "unread"])
@pytest.mark.parametrize("name", [None, "a cut", *CHANGES])
def test_other_numbers_are_sent(name: str | None, is_unread: bool, sends) -> None:
    made = loop(*KINDS["model"], is_told=True, ends=[200] * 3)
    for turn, counts in enumerate(VERDICTS[:3]):
        made.graphs.draft_after(*made.asked())
        behind = made.asked_behind()
        made.judge(counts, turn)
    assert len(sends) == 2
    rows, work = behind if is_unread else made.asked()
    if name == "a cut":  # a chain that is to be shorter is cut
        work = replace(work, depths=[3, 1, 2])
    elif name is not None:
        work = CHANGES[name](work)
    if name in CHANGES and is_unread:
        with pytest.raises(NeedsTokens):
            made.graphs.draft_after(rows, work)
    else:
        made.graphs.draft_after(rows, work)
    assert len(sends) == 2 + (name in CHANGES and not is_unread)


def test_a_table_knows_its_own_numbers() -> None:
    made = PassMemory(CPU)
    assert made.holds(made.numbers[7:9])
    assert not made.holds(torch.zeros(3))
    assert not len(PassMemory.on(CPU).numbers), "the host has it all"
