"""Recorded draft loops: what they choose, what their passes see, padding, and whole generations through them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from kernelchains import chosen_by_hand
from speccheck.recorder import Rerun, StandInAttention

from specdec.engine.sequence import Sequence
from specdec.engine.speculation.plugin_view import EngineDraws
from specdec.interfaces.draws import NoiseKeys
from specdec.logits.pipeline import apply_temperature_and_truncation
from specdec.sampling_params import SamplingParams
from specdec_kernels.cuda.graphs import DraftGraphs
from specdec_kernels.cuda.graphs.static_start import Reads
from specdec_runtime.interfaces import ChainRules, ChainWork, NewRows, PackedBatch

NUM_IDS = 24
GREEDY = ChainRules(NUM_IDS)
FIRST_SLOTS, CACHED = [0, 128, 256], [5, 40, 9]


def made_up(tokens: torch.Tensor, positions: torch.Tensor, features: torch.Tensor | None) -> torch.Tensor:
    """Logits `[T, NUM_IDS]` that depend on all that a pass sees."""
    mixed = tokens[:, None] * 7.0 + positions[:, None] * 3.0 + torch.arange(NUM_IDS) * 5.0
    if features is not None:
        mixed = mixed + features.sum(1, keepdim=True)
    return 2.0 * torch.sin(mixed)


class Passes:
    """Stands in for a model: says what it saw."""

    def __init__(self, backend: StandInAttention) -> None:
        self.backend = backend
        self.seen: list[tuple[list[int], ...]] = []

    def __call__(self, batch: PackedBatch, features: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        rows = self.backend.rows
        assert rows is not None
        assert batch.slots is rows.slots
        seen = (batch.token_ids, batch.positions, rows.slots, rows.context_lens, rows.query_starts)
        self.seen.append(tuple(tensor.tolist() for tensor in seen))
        logits = made_up(batch.token_ids, batch.positions, features)
        if batch.logits_rows is not None:
            logits = logits[batch.logits_rows]
        return (logits,) if features is None else (logits, features * 0.5 + batch.token_ids[:, None])


def make(
    recorder: Rerun | None = None, max_positions: int = 512, *, is_head: bool = False
) -> tuple[DraftGraphs, Passes]:
    backend = StandInAttention()
    passes = Passes(backend)
    head = (torch.empty(1, 4), Reads(combined)) if is_head else (None, None)
    place = recorder or Rerun(), backend, 512, max_positions, torch.device("cpu")
    return DraftGraphs(passes, *place, *head), passes


def combined(hidden: torch.Tensor, aux: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return hidden + 2.0 * aux[0]


def keys_of(sequences: list[Sequence]) -> NoiseKeys:
    return EngineDraws(sequences).coupled_keys(range(len(sequences)))


def sequences_of(temperatures: list[float]) -> list[Sequence]:
    made = []
    for i, (temperature, cached) in enumerate(zip(temperatures, CACHED, strict=True)):
        prompt = np.arange(cached + 1, dtype=np.int32)
        params = SamplingParams(temperature=temperature)
        made.append(Sequence(str(i), prompt, params, seed=100 + i, sample_index=i, max_num_tokens=500))
    return made


def by_hand(
    logits: torch.Tensor,
    carry: torch.Tensor | None,
    sequences: list[Sequence],
    num_steps: int,
    rules: ChainRules,
    cached: list[int] = CACHED,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens `[B, K]` and q `[B, K, num_ids]`, chosen as proposers choose step by step."""
    draws, temperatures = EngineDraws(sequences), [s.params.temperature for s in sequences]
    tokens, draft_probs = [], []
    for step in range(num_steps):
        chosen, law = chosen_by_hand(logits[:, : rules.num_ids], temperatures, draws, rules, step)
        tokens.append(chosen)
        draft_probs.append(law)
        logits = made_up(tokens[-1], torch.tensor(cached) + step, carry)
        carry = None if carry is None else carry * 0.5 + tokens[-1][:, None]
    return torch.stack(tokens, 1), torch.stack(draft_probs, 1)


def test_fewer_requests_use_the_recording_of_more() -> None:
    rules, temperatures = ChainRules(NUM_IDS), [0.7, 0.0, 1.3]
    graphs, _ = make()
    keys, logits = keys_of(sequences_of(temperatures)), torch.randn(3, NUM_IDS)
    for _ in range(2):
        chains = graphs.draft(logits, None, ChainWork(FIRST_SLOTS, CACHED, 5, temperatures, keys, rules))
    fewer = NoiseKeys(keys.seeds[:2], keys.samples[:2], keys.positions[:2])
    work = ChainWork(FIRST_SLOTS[:2], CACHED[:2], 5, temperatures[:2], fewer, rules)
    assert torch.equal(graphs.draft(logits[:2], None, work).token_ids[:2], chains.token_ids[:2])
    assert (graphs.num_recordings, graphs.num_replays, graphs.num_plain) == (1, 1, 2)


@pytest.mark.parametrize("is_head", [False, True])
@pytest.mark.parametrize("is_drawn", [False, True])
@pytest.mark.parametrize("is_reduced", [False, True])
@pytest.mark.parametrize("temperatures", [[0.0, 0.0, 0.0], [0.7, 0.0, 1.3]])
def test_it_chooses_what_is_chosen_step_by_step(is_head, is_drawn, is_reduced, temperatures) -> None:
    target_ids = np.arange(NUM_IDS - 2) * 3 + 1 if is_reduced else None
    rules = ChainRules(NUM_IDS - 2, target_ids, is_drawn=is_drawn, threshold=1e-9)
    graphs, _ = make()
    sequences = sequences_of(temperatures)
    for turn in range(3):
        torch.manual_seed(turn)
        logits, carry = torch.randn(3, NUM_IDS), torch.randn(3, 4) if is_head else None
        expected, draft_probs = by_hand(logits, carry, sequences, 5, rules)
        chains = graphs.draft(
            logits, carry, ChainWork(FIRST_SLOTS, CACHED, 5, temperatures, keys_of(sequences), rules)
        )
        assert chains.token_ids[:3].tolist() == expected.tolist()
        index = expected if target_ids is None else (expected - 1) // 3
        confidences = draft_probs.gather(2, index[:, :, None])[:, :, 0]
        torch.testing.assert_close(chains.confidences, confidences)
        if is_drawn and any(temperatures):
            torch.testing.assert_close(chains.draft_probs, draft_probs)
    assert (graphs.num_plain, graphs.num_recordings, graphs.num_replays) == (2, 1, 1)


COUNTS = [3, 1, 2]
AFTER = [8, 41, 11]


@pytest.mark.parametrize("is_head", [False, True])
@pytest.mark.parametrize("temperatures", [[0.0, 0.0, 0.0], [0.7, 0.0, 1.3]])
def test_new_tokens_are_run_first_in_the_same_recording(is_head, temperatures) -> None:
    graphs, passes = make(is_head=is_head)
    sequences = sequences_of(temperatures)
    for turn in range(3):
        torch.manual_seed(turn)
        tokens = torch.randint(0, 9, (6,))
        states = (torch.randn(6, 4), torch.randn(6, 4)) if is_head else ()
        features = combined(states[0], states[1:]) if is_head else None
        positions = torch.tensor([5, 6, 7, 40, 9, 10])
        logits = made_up(tokens, positions, features)[[2, 3, 5]]
        carry = None if features is None else (features * 0.5 + tokens[:, None])[[2, 3, 5]]
        expected, _ = by_hand(logits, carry, sequences, 5, GREEDY, AFTER)
        work = ChainWork(FIRST_SLOTS, CACHED, 5, temperatures, keys_of(sequences), GREEDY)
        passes.seen.clear()
        chains = graphs.draft_after(NewRows(tokens.numpy(), COUNTS, states), work)
        assert chains.token_ids.tolist() == expected.tolist()
        ids, places, slots, lengths, starts = passes.seen[0]
        assert (ids[:6], places[:6]) == (tokens.tolist(), positions.tolist())
        assert slots == [
            5,
            6,
            7,
            168,
            265,
            266,
            *[-1] * 18,
        ]  # with room for six new tokens of each of four requests
        assert (lengths, starts) == ([8, 41, 11, *[0] * 29], [0, 3, 4, *[6] * 30])
    assert (graphs.num_plain, graphs.num_recordings, graphs.num_replays) == (2, 1, 1)


def test_shorter_chains_use_the_recording_of_longer_ones_and_write_no_further() -> None:
    graphs, passes = make()
    nothing, tokens = NoiseKeys(*np.zeros((3, 3), np.int64)), np.array([4, 7, 1])
    rows = NewRows(tokens, [1, 1, 1])
    for _ in range(2):
        whole = graphs.draft_after(rows, ChainWork(FIRST_SLOTS, CACHED, 5, [0.0] * 3, nothing, GREEDY))
    for num_steps in (4, 1):
        passes.seen.clear()
        got = graphs.draft_after(rows, ChainWork(FIRST_SLOTS, CACHED, num_steps, [0.0] * 3, nothing, GREEDY))
        assert torch.equal(got.token_ids, whole.token_ids[:, :num_steps])
        written = [[slot >= 0 for slot in slots[:3]] for _, _, slots, _, _ in passes.seen[1:]]
        assert written == [[step + 1 < num_steps] * 3 for step in range(4)]
        assert all(max(lengths) <= 41 + num_steps for *_, lengths, _ in passes.seen)
    assert (graphs.num_plain, graphs.num_recordings, graphs.num_replays) == (2, 1, 2)


def test_what_is_expected_is_recorded_at_load_and_other_loops_with_new_tokens_are_not() -> None:
    graphs, _ = make()
    nothing, rules = NoiseKeys(*np.zeros((3, 1), np.int64)), ChainRules(NUM_IDS)
    example = NewRows(np.zeros(2, np.int64), [2]), ChainWork([0], [0], 3, [0.0], nothing, rules)
    graphs.prepare([(1, 256), (4, 256)], 16, *example)
    assert (graphs.num_recordings, graphs.num_replays, graphs.num_plain) == (6, 0, 0)
    keys = keys_of(sequences_of([0.0] * 3))
    for temperature, cuts in ((0.0, ()), (0.7, ()), (0.7, [(4, 1.0, 0.0)] * 3)):
        work = ChainWork(FIRST_SLOTS, CACHED, 2, [temperature] * 3, keys, rules, cuts)
        for counts in ([1, 1, 1], [2, 1, 2]):
            tokens = np.arange(sum(counts))
            got = graphs.draft_after(NewRows(tokens, counts), work)
            if temperature == 0.0:
                last = np.cumsum(counts) - 1
                positions = torch.tensor(CACHED) + torch.tensor(counts) - 1
                first = made_up(torch.from_numpy(tokens[last]), positions, None).argmax(-1)
                assert got.token_ids[:, 0].tolist() == first.tolist()
    assert (graphs.num_recordings, graphs.num_replays, graphs.num_plain) == (6, 6, 0)
    for _ in range(3):
        graphs.draft_after(NewRows(np.arange(9), [7, 1, 1]), replace(work, temperatures=[0.0] * 3, cuts=()))
    assert (graphs.num_recordings, graphs.num_replays, graphs.num_plain) == (6, 6, 3)


CUTS = [SamplingParams(top_k=4), SamplingParams(top_p=0.5, min_p=0.01), SamplingParams(min_p=0.3)]


def test_it_cuts_as_the_target_does() -> None:
    graphs, _ = make()
    sequences = sequences_of([0.7, 0.9, 1.3])
    cuts = [(params.top_k, params.top_p, params.min_p) for params in CUTS]
    num_cut = 0
    for turn in range(40):
        torch.manual_seed(turn)
        logits = 2.0 * torch.randn(3, NUM_IDS)
        temperatures = torch.tensor([[0.7], [0.9], [1.3]])
        kept = apply_temperature_and_truncation(logits / temperatures, CUTS, [1, 1, 1])
        expected = EngineDraws(sequences).coupled(kept, range(3), 1)
        work = ChainWork(FIRST_SLOTS, CACHED, 1, [0.7, 0.9, 1.3], keys_of(sequences), GREEDY, cuts)
        assert graphs.draft(logits, None, work).token_ids[:3, 0].tolist() == expected.tolist()
        uncut = EngineDraws(sequences).coupled(logits / temperatures, range(3), 1)
        num_cut += int((uncut != expected).sum())
        for sequence in sequences:
            sequence.seed += 1
    assert num_cut > 10


def test_its_passes_see_where_they_are_and_padding_writes_nowhere() -> None:
    graphs, passes = make()
    nothing = NoiseKeys(*np.zeros((3, 3), np.int64))
    graphs.draft(torch.randn(3, NUM_IDS), None, ChainWork(FIRST_SLOTS, CACHED, 3, [0.0] * 3, nothing, GREEDY))
    assert len(passes.seen) == 2  # the last token is not run
    for step, (tokens, positions, slots, lengths, starts) in enumerate(passes.seen):
        assert (tokens[3], positions) == (0, [cached + step for cached in CACHED] + [0])
        assert slots == [first + cached + step for first, cached in zip(FIRST_SLOTS, CACHED, strict=True)] + [
            -1
        ]
        assert lengths == [cached + step + 1 for cached in CACHED] + [0]
        assert starts == [0, 1, 2, 3, 3]


def test_no_row_goes_beyond_the_last_position() -> None:
    graphs, passes = make(max_positions=41)
    nothing = NoiseKeys(*np.zeros((3, 3), np.int64))
    graphs.draft(torch.randn(3, NUM_IDS), None, ChainWork(FIRST_SLOTS, CACHED, 4, [0.0] * 3, nothing, GREEDY))
    assert [positions for _, positions, *_ in passes.seen] == [[5, 40, 9, 0], [6, 40, 10, 0], [7, 40, 11, 0]]


def test_other_requests_take_the_same_recording() -> None:
    graphs, _ = make()
    for turn, cached in enumerate(([5, 40, 9], [7, 7, 100], [200, 3])):
        logits = torch.randn(len(cached), NUM_IDS, generator=torch.Generator().manual_seed(turn))
        nothing = NoiseKeys(*np.zeros((3, len(cached)), np.int64))
        slots = [300 + 128 * i for i in range(len(cached))]
        if turn == 2:
            slots[1] = 900
        got = graphs.draft(logits, None, ChainWork(slots, cached, 4, [0.0] * len(cached), nothing, GREEDY))
        index, expected = logits.argmax(-1), []
        for step in range(4):
            expected.append(index)
            index = made_up(index, torch.tensor(cached) + step, None).argmax(-1)
        assert got.token_ids[: len(cached)].tolist() == torch.stack(expected, 1).tolist()
    # Two requests take the recording of three, with more rows of padding.
    assert (graphs.num_plain, graphs.num_replays, graphs.num_recordings) == (2, 1, 1)


def test_one_step_needs_no_pass() -> None:
    graphs, passes = make()
    logits = torch.randn(3, NUM_IDS)
    nothing = NoiseKeys(*np.zeros((3, 3), np.int64))
    for _ in range(3):
        got = graphs.draft(logits, None, ChainWork(FIRST_SLOTS, CACHED, 1, [0.0] * 3, nothing, GREEDY))
        assert got.token_ids[:3, 0].tolist() == logits.argmax(-1).tolist()
        assert got.confidences.shape == (3, 0)
        assert got.draft_probs.numel() == 0
    assert passes.seen == []


def test_q_is_what_is_drawn_from() -> None:
    """With cuts, of which it keeps all that the target's law would."""
    graphs, _ = make()
    rules, sequences = ChainRules(300, is_drawn=True), sequences_of([0.7, 0.9, 0.0])
    cuts = [(0, 0.95, 0.0), (90, 0.99, 0.001), (3, 0.5, 0.0)]
    params = [SamplingParams(top_k=k, top_p=p, min_p=least) for k, p, least in cuts]
    for turn in range(4):
        logits = torch.randn(3, 310, generator=torch.Generator().manual_seed(turn))
        scaled = logits[:, :300] / torch.tensor([[0.7], [0.9], [1.0]])
        expected = apply_temperature_and_truncation(scaled, params, [1, 1, 1]).softmax(-1)
        work = ChainWork(FIRST_SLOTS, CACHED, 1, [0.7, 0.9, 0.0], keys_of(sequences), rules, cuts, [1] * 3)
        chains = graphs.draft(logits, None, work)
        assert chains.draft_probs.shape == (3, 2, 300), "as many rows as `Draft.node_probs`"
        q = chains.draft_probs[:, 0]
        torch.testing.assert_close(q[:2], expected[:2])
        assert ((q[:2] > 0).sum(1) > 64).all()
        drawn, _ = EngineDraws(sequences).sample(q.log(), range(3), 0)
        drawn[2] = logits[2, :300].argmax()
        assert chains.token_ids[:, 0].tolist()[:3] == drawn.tolist()
    assert graphs.num_replays == 2


@pytest.mark.parametrize("temperature", [1e-46, 1e-38, 1e-31, 1e-20])
def test_laws_of_almost_nothing_are_certain(temperature) -> None:
    graphs, _ = make()
    logits = torch.randn(3, NUM_IDS)
    keys, rules = keys_of(sequences_of([1.0] * 3)), ChainRules(NUM_IDS, is_drawn=True)
    draft_probs = graphs.draft(
        logits, None, ChainWork(FIRST_SLOTS, CACHED, 1, [temperature] * 3, keys, rules)
    ).draft_probs
    assert torch.equal(draft_probs[:, 0], torch.nn.functional.one_hot(logits.argmax(-1), NUM_IDS).float())


@pytest.mark.parametrize(
    ("recorder", "reason"),
    [
        (Rerun(failure="operation not permitted when stream is capturing"), "not permitted when stream"),
        (Rerun(spoil=3.0), "a replay chose other tokens"),
    ],
)
def test_what_cannot_be_recorded_runs_as_it_is_and_says_so_once(recorder, reason, caplog) -> None:
    graphs, _ = make(recorder)
    logits = torch.randn(3, NUM_IDS)
    nothing = NoiseKeys(*np.zeros((3, 3), np.int64))
    drafted = [
        graphs.draft(logits, None, ChainWork(FIRST_SLOTS, CACHED, 3, [0.0] * 3, nothing, GREEDY))
        .token_ids[:3]
        .tolist()
        for _ in range(4)
    ]
    assert drafted == [drafted[0]] * 4
    assert graphs.failure is not None
    assert reason in graphs.failure
    assert caplog.text.count("draft loops are not captured in graphs") == 1
    assert (graphs.num_plain, graphs.num_replays, graphs.num_recordings) == (4, 0, 0)
    assert graphs.max_rows == 0  # passes may still be replayed, one by one
