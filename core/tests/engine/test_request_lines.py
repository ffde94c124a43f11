"""The request table, and the lines that running requests have in it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch
from speccheck.engines import engine_of, make_llm
from speccheck.models import prompts, tiny

from specdec.assembly.opening import check_capabilities
from specdec.engine import engine as steps
from specdec.engine.request_lines import RequestLines
from specdec.engine.sequence import Sequence
from specdec.engine.step import Row
from specdec.errors import ConfigError
from specdec.interfaces import Capability, Draft, ProposeBatch, Proposer, RequestTable
from specdec.sampling_params import SamplingParams

CPU, LONGEST = torch.device("cpu"), 24


def sequence(*token_ids: int) -> Sequence:
    given = np.array(token_ids, np.int32)
    return Sequence("a", given, SamplingParams(), seed=0, sample_index=0, max_num_tokens=LONGEST)


def held(lines: RequestLines, *sequences: Sequence) -> list[list[int]]:
    table = lines.table
    return [table.token_ids[s.line, : int(table.num_tokens[s.line])].tolist() for s in sequences]


def verdict(
    lines: RequestLines, running: list[Sequence], emitted: list[list[int]], width: int = 4
) -> list[int]:
    """Append a verdict, as a device does before the host has it; returns the accepted nodes."""
    counts = [len(tokens) - 1 for tokens in emitted]
    ids = torch.tensor([tokens + [77] * (width - len(tokens)) for tokens in emitted])
    lines.table.append(torch.tensor([s.line for s in running]), torch.tensor(counts), ids)
    return counts


def test_a_line_is_written_once_and_then_grows_with_the_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, first, second = RequestLines(RequestTable.on(CPU, 3, LONGEST)), sequence(1, 2, 3), sequence(4)
    written = list[Any]()
    write = RequestTable.write
    monkeypatch.setattr(RequestTable, "write", lambda *given: (written.append(given[2:]), write(*given)))
    running = [first, second]
    lines.place(running)
    assert held(lines, *running) == [[1, 2, 3], [4]]
    counts = verdict(lines, running, [[5, 6], [7]])
    assert held(lines, *running) == [[1, 2, 3, 5, 6], [4, 7]]
    lines.take_verdict([Row(s, 0, 0, chunk=1) for s in running], counts)
    first.append([5, 6], 1)
    second.append([7], 0)
    lines.place(running)
    assert len(written) == 1, "the device had the rest"


def test_what_the_host_kept_of_a_verdict_counts() -> None:
    lines, own = RequestLines(RequestTable.on(CPU, 1, LONGEST)), sequence(1, 2)
    lines.place([own])
    lines.take_verdict([Row(own, 0, 0, chunk=1)], verdict(lines, [own], [[5, 6, 7]]))
    own.append([5, 9], 1)  # the rest was cut, and another token came from elsewhere
    lines.place([own])
    assert held(lines, own)[0][:3] == [1, 2, 5]
    assert len(held(lines, own)[0]) == 4


def test_a_row_that_left_its_step_is_written_again() -> None:
    lines, own = RequestLines(RequestTable.on(CPU, 1, LONGEST)), sequence(1, 2)
    lines.place([own])
    lines.take_verdict([Row(own, 0, 0, chunk=0)], verdict(lines, [own], [[8, 8, 8]]))
    own.append([3], 0)
    lines.place([own])
    assert held(lines, own) == [[1, 2, 3]]


def test_lines_go_from_one_to_the_next_whatever_runs() -> None:
    rng = random.Random(5)
    lines, known = RequestLines(RequestTable.on(CPU, 3, LONGEST)), [sequence(n, n + 1) for n in range(9)]
    for _ in range(200):
        running = rng.sample(known, rng.randint(1, 3))
        lines.place(running)
        assert held(lines, *running) == [s.token_ids.tolist() for s in running]
        assert len({s.line for s in running}) == len(running)
        emitted = [[rng.randrange(50) for _ in range(rng.randint(1, 4))] for _ in running]
        counts = verdict(lines, running, emitted)
        lines.take_verdict([Row(s, 0, 0, chunk=1) for s in running], counts)
        for each, tokens in zip(running, emitted, strict=True):
            if each.num_tokens + len(tokens) <= LONGEST:
                each.append(tokens, len(tokens) - 1)


def test_more_requests_than_were_announced_get_a_larger_table() -> None:
    lines, known = RequestLines(RequestTable.on(CPU, 2, LONGEST)), [sequence(n, n + 1) for n in range(9)]
    lines.place(known[:2])
    lines.place(known)
    assert held(lines, *known) == [s.token_ids.tolist() for s in known]


def test_what_does_not_fit_is_dropped() -> None:
    lines, own = RequestLines(RequestTable.on(CPU, 2, 6)), sequence(*range(1, 6))
    lines.place([own])
    verdict(lines, [own], [[7, 8, 9, 10]])
    assert held(lines, own) == [[1, 2, 3, 4, 5, 7]]
    long = sequence(*range(10, 20))
    lines.place([long, own])
    assert held(lines, long) == [[10, 11, 12, 13, 14, 15]]
    assert held(lines, own) == [[1, 2, 3, 4, 5, 7]], "a neighbour keeps what it has"


def test_a_copy_of_lines_has_room_for_more() -> None:
    table = RequestTable.on(CPU, 3, 4)
    table.write([2, 0], [0, 0], [np.array(row, np.int32) for row in ([1, 2], [3, 4, 5, 6])])
    copy = table.of_lines([0, 2], 4, 3)
    copy.write([0, 1], [4, 2], [np.array(row, np.int32) for row in ([7, 8, 9], [7])])
    assert copy.token_ids[0, :7].tolist() == [3, 4, 5, 6, 7, 8, 9]
    assert copy.token_ids[1, :3].tolist() == [1, 2, 7]
    assert copy.num_tokens.tolist() == [7, 3]
    assert table.num_tokens.tolist() == [4, 0, 2]
    assert cast(int, table.token_ids.shape[1]) == 5


class OnTheTable(Proposer):
    """Drafts the last token of the table again, and may write to what it is lent."""

    name: ClassVar[str] = "on the table"
    capabilities = frozenset({Capability.REQUEST_TABLE, Capability.BEFORE_VERDICT})
    wrong: ClassVar[Callable[[RequestTable], object] | None] = None
    seen: ClassVar[list[tuple[list[int], list[int]]]] = []

    def propose(self, batch: ProposeBatch) -> Draft:
        table, lines = batch.table, list(batch.lines)
        assert table is not None
        for row, line in enumerate(lines):
            if batch.max_nodes[row]:
                text = table.token_ids[line, : int(table.num_tokens[line])].tolist()
                self.seen.append((batch.token_ids(row).tolist(), text))
        last = [[int(table.token_ids[line, table.num_tokens[line] - 1])] * 2 for line in lines]
        if OnTheTable.wrong is not None:
            OnTheTable.wrong(table)
        return Draft.from_lists([row[:most] for row, most in zip(last, batch.max_nodes, strict=True)])


WRONG: dict[str, Callable[[RequestTable], object] | None] = {
    "right": None,
    "negative": lambda table: table.num_tokens.fill_(-10_000),
    "huge": lambda table: table.num_tokens.fill_(10**12),
    "resized": lambda table: (table.token_ids.resize_(0, 0), table.num_tokens.resize_(0)),
    "other ids": lambda table: table.token_ids.fill_(-7),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("is_ahead", [False, True])
def test_what_a_proposer_does_to_the_table_changes_no_text(
    wrong: str, is_ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnTheTable, "wrong", WRONG[wrong])
    OnTheTable.seen.clear()
    config = {
        "method": "custom_class",
        "model": f"{__name__}.OnTheTable",
        "num_speculative_tokens": 2,
        "adaptive": False,
    }
    params = SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True)
    given = prompts([9, 4, 6], seed=1)
    plain = make_llm(tiny("llama"), max_model_len=64).generate(given, params)
    llm = make_llm(tiny("llama"), config, max_model_len=64, async_scheduling=is_ahead)
    outputs = llm.generate(given, params)
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in plain]
    if wrong == "right":
        assert engine_of(llm).metrics.proposer_errors == 0
        assert all(text[: len(known)] == known for known, text in OnTheTable.seen)
        assert any(len(text) > len(known) for known, text in OnTheTable.seen) == is_ahead
        texts = [
            [*prompt, *output.outputs[0].token_ids] for prompt, output in zip(given, outputs, strict=True)
        ]
        assert all(any(text == own[: len(text)] for own in texts) for _, text in OnTheTable.seen)


def test_lines_are_written_anew_after_a_step_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "method": "custom_class",
        "model": f"{__name__}.OnTheTable",
        "num_speculative_tokens": 2,
        "adaptive": False,
    }
    llm = make_llm(tiny("llama"), config, max_model_len=64, async_scheduling=True)
    engine, num_failed = engine_of(llm), 0
    check, calls = steps.check_verdict, iter(range(100))

    def failing(*given: Any) -> Any:
        if next(calls) == 4:
            raise RuntimeError("the device")
        return check(*given)

    monkeypatch.setattr(steps, "check_verdict", failing)
    params = SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True)
    engine.add(
        llm._input_processor.prepare(
            "a", {"prompt_token_ids": prompts([9], seed=1)[0]}, params, is_streaming=False
        )
    )
    while engine.has_work:
        try:
            engine.step()
        except RuntimeError:
            num_failed += 1
            OnTheTable.seen.clear()
    assert num_failed == 1
    known, text = OnTheTable.seen[0]
    assert text == known


@pytest.mark.parametrize("other", [Capability.TARGET_TOP_K, Capability.TARGET_CACHE])
def test_who_is_asked_before_the_verdict_needs_nothing_that_comes_with_it(other: Capability) -> None:
    class Both(OnTheTable):
        capabilities = OnTheTable.capabilities | {other}
        num_top_k = 1

    with pytest.raises(ConfigError, match="declares BEFORE_VERDICT"):
        check_capabilities(Both(cast(Any, None), cast(Any, None)), cast(Any, None))
