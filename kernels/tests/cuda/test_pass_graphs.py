"""Recorded passes: padding, which shapes are recorded, what is given up, and whole generations through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from speccheck.engines import greedy, make_llm, scripted, tokens_of
from speccheck.models import tiny
from speccheck.recorder import NUM_SLOTS, RecordingBackend, Rerun, StandInAttention, use_backends

from specdec import LLM
from specdec.interfaces import DeviceNodes, PassMemory, Transfer, UnreadVerdict, VerdictOffsets
from specdec_kernels.cuda.graphs import recordings
from specdec_kernels.cuda.graphs.pass_graphs import PassGraphs
from specdec_kernels.cuda.graphs.pass_shape import MAX_PROMPT_ROWS, MAX_ROWS, prompt_shapes_for, shape_of
from specdec_kernels.cuda.graphs.static_pass import StaticPass
from specdec_kernels.cuda.paged_pass import paged_pass, pass_numbers
from specdec_kernels.layers.backend import LayersBackend
from specdec_runtime.interfaces import HostRows, PackedBatch, PassLimits, Segment

CPU = torch.device("cpu")


def step(
    rows: list[int], cached: list[int], first_id: int = 7, wanted: list[int] | None = None
) -> PackedBatch:
    """A pass of some requests, 128 slots apart, whose tokens are all different."""
    segments, slots, row = [], [], 0
    for index, (count, before) in enumerate(zip(rows, cached, strict=True)):
        segments.append(Segment(row, count, 128 * index, before))
        slots.append(np.arange(before, before + count) + 128 * index)
        row += count
    positions = np.concatenate([np.arange(s.num_cached, s.kv_len) for s in segments])
    logits_rows = None if wanted is None else np.array(wanted)
    host = HostRows(np.arange(row) + first_id, positions, np.concatenate(slots), logits_rows)
    return PackedBatch.of_rows(host, segments, CPU)


def with_trees(batch: PackedBatch, *, branched: int = 0) -> PackedBatch:
    """The same, but of its last request each row sees only itself, after what all see and none of the branched rows."""
    last = batch.segments[-1]
    count = last.num_rows
    last.tree_mask = torch.cat((torch.zeros(count, branched), torch.eye(count)), 1).bool()
    last.num_branched, last.depths = branched, torch.zeros(count, dtype=torch.int64)
    batch.host.positions[last.row :] = last.num_cached
    return batch


def doubled(batch: PackedBatch, features: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    logits = 2.0 * batch.token_ids[:, None]
    wanted = batch.logits_rows
    return logits if wanted is None else logits[wanted], batch.positions[:, None] + 0.5


def graphs(recorder: Rerun, run=doubled) -> PassGraphs:
    return PassGraphs(run, recorder, StandInAttention(), 512)


def test_a_shape_is_recorded_when_it_comes_again() -> None:
    made = graphs(Rerun())
    assert made.forward(step([3, 1], [5, 9])) is None
    for cached in ([6, 10], [40, 1]):
        batch = step([2, 1], cached)
        tokens, positions = made.forward(batch)
        assert torch.equal(tokens, 2.0 * batch.token_ids[:, None])
        assert torch.equal(positions, batch.positions[:, None] + 0.5)
    assert (made.num_recordings, made.num_replays, made.num_plain, made.num_bytes) == (
        1,
        2,
        1,
        1000 + 4 * 256 // 16 * 8 + MAX_ROWS * (4 + 4),  # with the outputs that all recordings share
    )


def test_what_was_returned_is_not_written_again() -> None:
    made = graphs(Rerun())
    batch = step([4], [5])
    assert made.forward(batch) is None
    first = made.forward(batch)
    kept = [tensor.clone() for tensor in first]
    made.forward(step([4], [5], first_id=107))
    assert all(map(torch.equal, first, kept))


def test_padding_writes_nowhere_and_is_never_read() -> None:
    batch = step([3, 2], [5, 9])
    numbers = pass_numbers(batch.segments, NUM_SLOTS, {}, is_exact=False)
    shape = shape_of(5, numbers)
    assert (shape.num_rows, shape.num_requests) == (8, 8)
    static = StaticPass(replace(shape, num_requests=4), 512, CPU, torch.ones(5, 6))
    for number in (3.0, 5.0):
        static.send(batch, numbers, torch.full((5, 6), number))
        static.make_inputs()
        assert static.rows.slots.tolist() == [5, 6, 7, 137, 138, -1, -1, -1]
        assert static.rows.query_starts.tolist() == [0, 3, 5, 5, 5]
        assert static.rows.context_lens.tolist() == [8, 11, 0, 0]
        assert torch.equal(
            static.rows.block_tables[:2], paged_pass(batch, NUM_SLOTS, {}, is_exact=False).block_tables
        )
        assert static.batch.token_ids.tolist() == [7, 8, 9, 10, 11, 0, 0, 0]
        assert static.features.sum() == number * 30


def test_rows_take_ids_that_the_host_has_not_read() -> None:
    plain, drafted = step([3, 2], [5, 9]), DeviceNodes(torch.tensor([[[31, 32], [99, 33]]]), [2, 2], 50)
    host = plain.host._replace(token_ids=np.array([7, -1, -2, -3, -4]))
    batch = PackedBatch.of_rows(host, plain.segments, CPU, drafted)
    assert batch.token_ids.tolist() == [7, 31, 32, 49, 33]
    made = graphs(Rerun())
    assert made.forward(batch) is None
    for _ in range(2):
        tokens, _ = made.forward(batch)
        assert torch.equal(tokens, 2.0 * batch.token_ids[:, None])
        tokens, _ = made.forward(plain)
        assert torch.equal(tokens, 2.0 * plain.token_ids[:, None])
    assert made.num_recordings == 1
    many = DeviceNodes(torch.zeros((1, 18, 11), dtype=torch.int64), [11] * 18, 50)
    assert made.forward(PackedBatch.of_rows(host, plain.segments, CPU, many)) is None, "no room"


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "new shape"])
def test_rows_take_the_tokens_of_a_verdict_wherever_these_are(is_recorded: bool) -> None:
    """Also in the memory that this pass fills; of some requests of the last step, and fewer than it had."""
    rows, num_verdicts, num_columns = [1, 4, 5], 40, 2
    for offset in range(0, 900, 7):
        memory = PassMemory(CPU, 1200)
        made = PassGraphs(doubled, Rerun(), StandInAttention(), 512, pass_memory=memory)
        plain = step([1, 1, 1], [5, 9, 3])
        for _ in range(3 if is_recorded else 1):
            made.forward(plain)
        tokens = memory.numbers[offset : offset + num_verdicts * num_columns].view(num_verdicts, num_columns)
        tokens.copy_(100 + torch.arange(num_verdicts * num_columns).view(num_verdicts, num_columns))
        counts_at = offset + num_verdicts * num_columns
        memory.numbers[counts_at : counts_at + num_verdicts] = 0
        wanted = tokens[rows, 0].tolist()
        moves = UnreadVerdict(tokens, VerdictOffsets(counts_at, offset, num_columns), rows, 0)
        batch = PackedBatch.of_rows(plain.host, plain.segments, CPU, None, None, moves)
        assert batch.token_ids.tolist() == wanted
        got, _ = made.forward(batch)
        assert (got[:, 0] / 2).tolist() == wanted, offset
        assert made.num_recordings == 1


def test_what_follows_a_pass_is_sent_with_it() -> None:
    made, arrays = (
        graphs(Rerun()),
        [np.arange(5), np.array([0.5, 2.0, 4.0], np.float32), np.array([[True], [False]])],
    )
    plain = step([3, 1], [5, 9])
    assert made.forward(plain) is None
    for size in (5, 40_000):  # which is more than there is room for, so that it is sent by itself
        transfer = Transfer([np.arange(size), *arrays[1:]])
        batch = PackedBatch.of_rows(plain.host, plain.segments, CPU, None, transfer)
        tokens, _ = made.forward(batch)
        assert torch.equal(tokens, 2.0 * plain.token_ids[:, None])
        found = transfer.on(CPU)
        assert [each.dtype for each in found] == [torch.int64, torch.float32, torch.bool]
        assert [each.tolist() for each in found] == [
            list(range(size)),
            *(array.tolist() for array in arrays[1:]),
        ]
        assert {each.data_ptr() % 16 for each in found} == {0}


@pytest.mark.parametrize("branched", [0, 2])
def test_trees_are_sent_with_the_rest(branched) -> None:
    batch = with_trees(step([3, 2], [5, 9]), branched=branched)
    numbers = pass_numbers(batch.segments, NUM_SLOTS, {}, is_exact=False)
    rows, shape = paged_pass(batch, NUM_SLOTS, {}, is_exact=False), shape_of(5, numbers)
    static = StaticPass(shape, 512, CPU, None)
    for _ in range(2):
        static.send(batch, numbers, None)
        static.make_inputs()
        size = len(rows.context_lens)
        assert torch.equal(static.rows.context_lens[:size], rows.context_lens)
        assert torch.equal(static.rows.query_starts[: size + 1], rows.query_starts)
        for place, length in enumerate(rows.context_lens.tolist()):
            seen = -(-length // rows.page_size)
            assert torch.equal(static.rows.block_tables[place, :seen], rows.block_tables[place, :seen])
    if branched:  # a request of one row each: seven common slots, and its own
        assert rows.context_lens.tolist() == [8, 8, 8]
        assert rows.block_tables[:, 6:8].tolist() == [[6, 7], [134, 137], [134, 138]]
        assert rows.tree_mask is None
    else:
        assert torch.equal(static.rows.tree_mask[:5], rows.tree_mask)
        assert [mask & 3 for mask in rows.tree_mask[:, 0].tolist()] == [3, 3, 3, 1, 2]
        assert static.rows.positions[:5].tolist() == rows.positions.tolist() == [5, 6, 7, 9, 9]


@pytest.mark.parametrize(
    ("num_rows", "padded"),
    [
        (1, 1),
        (2, 2),
        (3, 4),
        (4, 4),
        (5, 8),
        (8, 8),
        (9, 16),
        (33, 40),
        (65, 80),
        (256, 256),
        (257, 288),
        (512, 512),
    ],
)
def test_rows_are_padded_to_few_sizes(num_rows, padded) -> None:
    numbers = pass_numbers(step([1], [5]).segments, NUM_SLOTS, {}, is_exact=False)
    assert shape_of(num_rows, numbers).num_rows == padded


def test_long_passes_run_as_they_are() -> None:
    made = graphs(Rerun())
    made.prepare(prompt_shapes_for(PassLimits(4, 100, 80), 512, 16), CPU, None)
    num_prepared = made.num_recordings
    for batch in (
        step([*[100] * 5, 13], [0] * 6),
        step([*[100] * 5, 13], [0] * 6, wanted=[512]),
        step([70, 1, 1, 1, 1], [0] * 5, wanted=[69]),
    ):
        assert made.forward(batch) is None
        assert made.forward(batch) is None
    assert (made.num_recordings, made.num_plain) == (num_prepared, 6)


LIMITS = PassLimits(num_requests=24, num_rows=512, num_logits=300)


@pytest.mark.parametrize("keeps_outputs", [True, False])
@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([65], [64]),
        ([100], []),
        ([1, 1, 90], [0, 1, 91]),
        ([2, 100, 3, 1, 7], [0, 1, *range(102, 113)]),
        ([*[4] * 24, 100], range(96)),
        ([*[20] * 23, 50], range(23 * 20)),
        ([100] * 5, [99, 199]),
    ],
)
def test_prompts_have_logits_of_the_wanted_rows_alone(
    rows: list[int], wanted: Sequence[int], keeps_outputs: bool
) -> None:
    made = PassGraphs(doubled, Rerun(), StandInAttention(), 512, keeps_outputs=keeps_outputs)
    made.prepare(prompt_shapes_for(LIMITS, 512, 16), CPU, None)
    for first_id in (7, 1007):
        batch = step(rows, [0] * len(rows), first_id=first_id, wanted=list(wanted))
        logits, states = made.forward(batch)
        assert torch.equal(logits, 2.0 * batch.token_ids[list(wanted), None])
        assert torch.equal(states, batch.positions[:, None] + 0.5)
    assert made.num_plain == 0


def test_few_recordings_serve_prompts_of_every_length() -> None:
    shapes = prompt_shapes_for(PassLimits(64, 8192, 400), 8192, 16)
    assert len(shapes) == 18 * 3 * 2
    rows = sorted({shape.num_rows for shape in shapes})
    assert rows[0] == 96
    assert rows[-1] == MAX_PROMPT_ROWS
    assert all(after <= 1.34 * before for before, after in pairwise(rows))
    sizes = {(shape.num_requests, shape.num_wanted) for shape in shapes}
    assert sizes == {(4, 64), (64, 64), (64, 512)}
    assert {shape.max_context_len for shape in shapes} == {2048, 16384}
    assert {s.max_context_len for s in prompt_shapes_for(PassLimits(1, 100, 1), 200, 16)} == {256}


@pytest.mark.parametrize("is_recorded", [True, False], ids=["of a prompt", "of all logits"])
def test_states_of_a_longer_pass_are_kept_behind_it(is_recorded: bool) -> None:
    """The pass behind drafts is short; the one before had a prompt, and a proposer reads the states of all of its rows."""
    memory = PassMemory(CPU)
    made = PassGraphs(doubled, Rerun(), StandInAttention(), 512, keeps_outputs=False, pass_memory=memory)
    shapes = [shape_of(1, pass_numbers(step([1], [5]).segments, NUM_SLOTS, {}, is_exact=False))]
    made.prepare([*shapes, *(prompt_shapes_for(LIMITS, 512, 16) if is_recorded else ())], CPU, None)
    first = step([60 + 40 * is_recorded], [0], wanted=[59 + 40 * is_recorded])
    while made.forward(first) is None:
        pass
    expected = first.positions[:, None] + 0.5
    tokens = torch.tensor([[5, 6, 7]])
    memory.numbers[1000], memory.numbers[1001:1004] = 2, tokens[0]
    behind = UnreadVerdict(tokens, VerdictOffsets(1000, 1001, 3), [0], 2)
    plain = step([1], [100])
    transfer = Transfer([np.zeros(8, np.int64)])
    transfer.growing_at.append(0)
    batch = PackedBatch.of_rows(plain.host, plain.segments, torch.device("meta"), None, transfer, behind)
    batch.device = CPU
    assert made.forward(batch) is not None
    assert torch.equal(memory.states_before[0, : len(expected)], expected)


def test_the_least_used_recording_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(recordings, "MAX_RECORDINGS", 2)
    made = graphs(Rerun())
    one, two, four = (step([count], [5]) for count in (1, 2, 4))
    for batch in (one, one, two, two, one, four, four):
        made.forward(batch)
    assert made.num_recordings == 2
    assert made.forward(one) is not None
    assert made.forward(two) is None


@pytest.mark.parametrize(
    ("recorder", "reason"),
    [
        (Rerun(failure="operation not permitted when stream is capturing"), "not permitted when stream"),
        (Rerun(spoil=1.01), "a replay differs from the pass it repeats by 1.0e-02"),
        (Rerun(spoil=float("nan")), "a replay differs"),
    ],
)
def test_what_cannot_be_recorded_runs_as_it_is_and_says_so_once(recorder, reason, caplog) -> None:
    made = graphs(recorder)
    for _ in range(4):
        assert made.forward(step([4], [5])) is None
    assert reason in made.failure
    assert caplog.text.count("not captured in graphs") == 1
    assert (made.num_recordings, made.num_plain, made.num_replays) == (0, 4, 0)


PROMPTS = [[5, 9, 3], list(range(20, 39)), [7]]
SCRIPTED = scripted(wrong=0.3, seed=1)


def generate(speculation, num_tokens=12, **options) -> tuple[list[list[int]], LLM]:
    llm = make_llm(tiny("llama"), speculation, max_model_len=64, **options)
    return tokens_of(llm, PROMPTS, greedy(num_tokens)), llm


@pytest.mark.interpreter
@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("is_fused", [False, True], ids=["own", "fused"])
def test_generations_through_recorded_passes(shape, is_fused, monkeypatch) -> None:
    layers = [LayersBackend()] if is_fused else []
    options = {"deterministic": is_fused} | {"attention_backend": "triton", "device": "cpu"}
    use_backends(monkeypatch, RecordingBackend(None), *layers)
    expected, _ = generate(None, **options)
    texts = [[*p, *e] for p, e in zip(PROMPTS, expected, strict=True)]
    use_backends(monkeypatch, RecordingBackend(Rerun()), *layers)
    got, llm = generate(SCRIPTED | {"shape": shape, "texts": texts}, **options)
    assert got == expected
    made = llm._built.scorer.runner.forms[0][0]._passes
    assert made.failure is None
    assert made.num_replays > made.num_recordings > 0
    told = {
        metric.name: metric.value for metric in llm.get_metrics() if metric.name.startswith("specdec:graph")
    }
    assert told == {
        "specdec:graph_replays": made.num_replays,
        "specdec:graph_misses": made.num_plain,
        "specdec:graph_failures": 0,
        "specdec:graph_recordings": made.num_recordings,
        "specdec:graph_bytes": made.num_bytes,
    }
    assert llm._built.engine.metrics.num_accepted_tokens > 0


@pytest.mark.gpu
@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_generations_through_cuda_graphs(shape) -> None:
    expected, _ = generate(None, 24, device="cuda", enforce_eager=True, attention_backend="sdpa")
    texts = [[*p, *e] for p, e in zip(PROMPTS, expected, strict=True)]
    got, llm = generate(
        SCRIPTED | {"shape": shape, "texts": texts}, 24, device="cuda", attention_backend="triton"
    )
    assert got == expected
    made = llm._built.scorer.runner.forms[0][0]._passes
    assert made.failure is None
    assert made.num_replays > made.num_recordings > 0
    assert made.num_bytes > 0
