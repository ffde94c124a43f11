"""Drafts that are asked for while the step before runs: what is left of them, and when they are asked for."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from speccheck.engines import make_llm, proposer_of, scripted
from speccheck.models import prompts, tiny

from specdec import SamplingParams
from specdec.engine.late_drafts import LateDrafts, aligned
from specdec.engine.step import Row, Step
from specdec.interfaces import AsyncVerdict, Capability, CheckedDraft, UnreadVerdict


def left_of(draft: list[int], emitted: list[int], width: int) -> list[int]:
    """What `aligned` promises of one request, in plain Python."""
    left = draft[len(emitted) :][:width] if draft[: len(emitted) - 1] == emitted[:-1] else []
    return left + [emitted[-1]] * (width - len(left))


def test_what_is_left_of_a_draft_follows_the_emitted_tokens() -> None:
    rng, num_left = random.Random(3), 0
    for _ in range(300):
        size, columns, width = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 4)
        drafts = [[rng.randrange(2) for _ in range(rng.randint(0, columns + width))] for _ in range(size)]
        emitted = [[rng.randrange(2) for _ in range(rng.randint(1, columns))] for _ in range(size)]
        padded = torch.tensor([row + [-1] * (columns + width - len(row)) for row in drafts])
        token_ids = torch.tensor([row + [-1] * (columns - len(row)) for row in emitted])
        lengths, counts = (torch.tensor([*map(len, rows)]) for rows in (drafts, emitted))
        got = aligned(padded, lengths, token_ids, counts - 1, width).tolist()
        assert got == [left_of(*each, width) for each in zip(drafts, emitted, strict=True)]
        num_left += sum(len(draft) > len(own) for draft, own in zip(drafts, emitted, strict=True))
    assert num_left > 100, "or this tests something else"


class Asked:
    """Stands for the speculation of an engine, whose proposer drafts the same for every step."""

    def __init__(self, rows: list[tuple[int, ...]]) -> None:
        self.rows, self.parents, self.most = rows, None, list[int]()
        self.capabilities, self.num_speculative_tokens = {Capability.LATE_DRAFTS}, 3

    def draft_late(self, step: Step, most: list[int]) -> CheckedDraft:
        self.most = most
        return CheckedDraft(tuple(self.rows), self.parents)


def test_nodes_are_those_that_a_row_has_room_for() -> None:
    sequences: list[Any] = [SimpleNamespace(max_num_tokens=most) for most in (30, 14, 30, 30)]
    rows = [Row(each, 10, 11, 3, 1, True, slack=1) for each in sequences]
    step, last = Step(rows, sampled=rows), Step([])
    emitted, counts = torch.tensor([[5, 6], [5, -1], [5, 6], [7, -1]]), torch.tensor([1, 0, 1, 0])
    verdict: Any = None
    scores: Any = SimpleNamespace(logits=torch.zeros(8, 50))
    last.pending, last.scores = AsyncVerdict(emitted, counts, lambda: verdict), scores
    step.behind = UnreadVerdict(emitted, None, [0, 1, 2, 3], 1)
    asked: Any = Asked([(5, 6, 1, 2, 3), (5, 9, 8, 8), (), (4, 8)])
    draft = LateDrafts(asked).draft(step, last)
    assert draft is not None
    assert asked.most == [5, 3, 5, 5], "a row ends at the most tokens of its text, whatever is accepted"
    assert draft.num_nodes == [3, 1, 0, 1]
    assert draft.read().rows == ((1, 2, 3), (9,), (), (8,))
    asked.capabilities = set()
    LateDrafts(asked).draft(step, last)
    assert asked.most == [3, 3, 3, 3], "no more than it was configured for"
    asked.rows, asked.parents = [(5, 6, 1, 2), (), (), ()], ((-1, 0, 0, 2), (), (), ())
    tree = LateDrafts(asked).draft(step, last)
    assert tree is not None
    assert tree.num_nodes == [1, 0, 0, 0], "the chain that it begins with has two nodes"
    nothing: Any = Asked([(), (), (3,), ()])
    assert LateDrafts(nothing).draft(step, last) is None


def step(
    *,
    emitted: int = 1,
    nodes: int = 5,
    seconds: float = 1.0,
    asking: float = 0.0,
    is_late: bool = False,
    size: int = 1,
) -> Step:
    """Return a committed step of requests that decode."""
    nobody: Any = None
    found = Step([Row(nobody, 9, 10, 5, 1, True) for _ in range(size)], is_late=is_late)
    for row in found.rows:
        row.draft(range(nodes))
        row.emitted = range(emitted)
    found.propose_s, found.score_s = asking, seconds - asking
    return found


def made() -> Any:
    return LateDrafts(None)  # type: ignore[arg-type]  # nothing is asked


@pytest.mark.parametrize(
    ("late", "in_time", "pays"),
    [
        ((2, 1.0), (2, 1.2), True),
        ((2, 1.0), (3, 1.2), False),
        ((1, 0.9), (1, 1.0), True),
        ((2, 1.1), (2, 1.0), False),
    ],
)
def test_the_faster_kind_is_chosen(late: tuple[int, float], in_time: tuple[int, float], pays: bool) -> None:
    drafts = made()
    for _ in range(20):
        drafts.observe(step(emitted=late[0], seconds=late[1], is_late=True))
        drafts.observe(step(emitted=in_time[0], seconds=in_time[1]))
    assert [drafts.pays(step()) for _ in range(63)] == [pays] * 63
    assert drafts.pays(step()) != pays, "one in 64 measures the other kind"
    assert drafts.pays(step(size=9)), "another batch size is measured by itself"


def test_both_kinds_are_measured_first() -> None:
    drafts = made()
    for _ in range(3):
        drafts.observe(step(seconds=9.0))  # warms up
    for _ in range(4):
        assert drafts.pays(step())
        drafts.observe(step(is_late=True))
    for _ in range(4):
        assert not drafts.pays(step())
        drafts.observe(step(seconds=2.0))
    assert drafts.pays(step())


def test_steps_with_prompts_and_resting_ones_are_not_counted() -> None:
    drafts = made()
    for _ in range(3):
        drafts.observe(step(nodes=0))
    prompt, resting = step(seconds=9.0, nodes=0), step(seconds=9.0, nodes=0)
    prompt.rows[0].chunk, resting.rows[0].cap = 40, 0
    assert not drafts.observe(prompt)
    assert not drafts.observe(resting)
    assert drafts.observe(step(seconds=2.0, nodes=0))
    assert not drafts.observe(step(seconds=2.0)), "it has a draft"
    assert drafts._of(step()).in_time.seconds.value == 2.0


def test_a_proposer_that_takes_its_time_is_left_to_adaptive() -> None:
    """Which may stop asking it, and so has to see that it finds nothing."""
    drafts = made()
    for _ in range(5):
        seen = drafts.observe(step(seconds=2.0, asking=0.5, nodes=0))
    assert not seen
    assert not drafts.pays(step())
    for _ in range(300):
        drafts.observe(step(seconds=2.0, asking=0.1, nodes=0))
    assert drafts.observe(step(seconds=2.0, asking=0.1, nodes=0))
    assert drafts.pays(step())


def test_adaptive_stops_asking_a_slow_proposer_that_finds_nothing() -> None:
    config = scripted("Scripted", 3, finds=0.0, sleep_s=0.01, adaptive=True)
    llm = make_llm(
        tiny("llama"), config, max_model_len=160, num_gpu_blocks_override=100, async_scheduling=True
    )
    params = SamplingParams(temperature=0.0, max_tokens=100, ignore_eos=True)
    for _ in range(2):
        before = proposer_of(llm).num_calls
        llm.generate(prompts([9], seed=1), params)
    assert proposer_of(llm).num_calls - before < 20
