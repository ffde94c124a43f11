"""The kernels decide what the samplers decide with torch, and a kernel that decides otherwise is found when it is chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from speccheck.recorder import use_backends

from specdec import SamplingParams, registry
from specdec.interfaces import (
    Backend,
    Declined,
    DeviceNodes,
    Draft,
    DraftSampling,
    DrawnNodes,
    SamplerConfig,
    Scores,
    Transfer,
    Verify,
    VerifyBatch,
)
from specdec.logits.logprobs import listings
from specdec.samplers import BlockSampler, ProbabilisticSampler, StrictSampler
from specdec.samplers.torch_sampler import fast_verify
from specdec_kernels.cuda import verification
from specdec_kernels.cuda.verification import SCHEMES, RejectionOnDevice, StrictOnDevice

# Infinities are part of the arithmetic of draws; the interpreter's numpy warns where a GPU goes on.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")

VOCAB = 7
SAMPLERS = {
    "strict": StrictSampler(SamplerConfig()),
    "probabilistic": ProbabilisticSampler(SamplerConfig()),
    "block": BlockSampler(SamplerConfig()),
}
VERIFY = {"strict": StrictOnDevice()} | {name: RejectionOnDevice(scheme) for name, scheme in SCHEMES.items()}


def problem(seed: int, *, is_tree: bool, is_drawn: bool) -> tuple[Scores, VerifyBatch]:
    """Ragged drafts of four requests, one of them greedy, with ties, forbidden ids, and rows without q."""
    rng = np.random.default_rng(seed)
    sizes = [int(n) for n in rng.integers(0, 6, 4)]
    logits = torch.from_numpy(rng.integers(-2, 3, (sum(sizes) + 4, VOCAB)).astype(np.float32))
    logits[torch.from_numpy(rng.random(logits.shape) < 0.2)] = -torch.inf
    logits[:, 0] = 0.5
    rows = [rng.integers(0, VOCAB, size).tolist() for size in sizes]
    parents = [[int(rng.integers(-1, j)) if j else -1 for j in range(size)] for size in sizes]
    drawn = None
    if is_drawn:
        q = torch.from_numpy(rng.dirichlet(np.full(VOCAB, 0.5), (4, max(sizes) + 1)).astype(np.float32))
        flags = torch.tensor([True, True, False, True])
        drawn = DrawnNodes(Draft.from_lists(rows).token_ids, q, DraftSampling.IID, flags)
    temperatures = [1.0, 0.0, 1.0, 1.0]
    batch = VerifyBatch(
        [*map(tuple, rows)],
        [9, 4, 30, 1],
        [7, 8, 9, seed],
        [0, 1, 0, 2],
        [SamplingParams(temperature=t) for t in temperatures],
        [*map(tuple, parents)] if is_tree else None,
        drawn,
    )
    return Scores(logits, logits), batch


@pytest.mark.interpreter
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64, "transposed"])
@pytest.mark.parametrize("is_drawn", [False, True])
@pytest.mark.parametrize("name", SAMPLERS)
def test_kernels_decide_what_torch_decides(name, is_drawn, kind) -> None:
    num_accepted = 0
    for seed in range(12):
        is_tree = name == "strict" and seed % 2 == 1
        scores, batch = problem(seed, is_tree=is_tree, is_drawn=is_drawn and name != "strict")
        if kind is torch.float64:
            scores = replace(scores, logits=scores.logits.double())
        if batch.drawn is not None:
            probs = batch.drawn.node_probs
            probs = probs.mT.contiguous().mT if kind == "transposed" else probs.to(kind)
            batch = replace(batch, drawn=replace(batch.drawn, node_probs=probs))
        expected = SAMPLERS[name].verify_with_torch(scores, batch)
        got = VERIFY[name](scores, batch)
        assert got is not None
        transfer = Transfer(VERIFY[name].arrays(batch))
        assert got == VERIFY[name](scores, replace(batch, transfer=transfer))
        assert [list(row) for row in got.accepted_nodes] == [list(row) for row in expected.accepted_nodes]
        assert [list(row) for row in got.token_ids] == [list(row) for row in expected.token_ids]
        num_accepted += sum(got.num_accepted)
    assert num_accepted > 0


@pytest.mark.interpreter
@pytest.mark.parametrize("name", SAMPLERS)
def test_drafted_ids_are_read_with_the_verdict(name) -> None:
    for seed in range(8):
        is_tree = name == "strict" and seed % 2 == 1
        scores, batch = problem(seed, is_tree=is_tree, is_drawn=False)
        width = max(batch.num_nodes) + 1
        nodes = torch.full((1 + is_tree, 4, width), VOCAB + 3)
        for part, rows in zip(nodes, (batch.nodes, batch.parents or ()), strict=False):
            for place, row in zip(part, rows, strict=True):
                place[: len(row)] = torch.tensor(row)
        nodes[0, seed % 4, 0] = -5
        there = DeviceNodes(nodes, batch.num_nodes, VOCAB)
        if seed > 3:
            there.copy_to(torch.full((400,), -9))
        given = replace(batch, nodes=((),) * 4, parents=None, device_nodes=there)
        got = VERIFY[name](scores, given)
        assert there.num_outside == (batch.num_nodes[seed % 4] > 0)
        rows = [(-5, *row[1:]) if i == seed % 4 and row else row for i, row in enumerate(batch.nodes)]
        assert got == VERIFY[name](scores, replace(batch, nodes=rows))
        ids, parents = there.read()
        assert [*ids] == [tuple(max(0, token) for token in row) for row in rows]
        assert (parents is not None) is is_tree
        if is_tree:
            assert [*parents] == batch.parents
            for path, found in zip(got.accepted_nodes, got.paths.tolist(), strict=True):
                assert found == [*path, *[-1] * (len(found) - len(path))]


@pytest.mark.interpreter
@pytest.mark.parametrize("is_reduced", [False, True])
@pytest.mark.parametrize("name", [*SAMPLERS][1:])
def test_drawn_ids_are_compared_with_their_q(name, is_reduced) -> None:
    """Where a row of q is 0, the chain ends; rows without q are compared with none."""
    for seed in range(8):
        scores, batch = problem(seed, is_tree=False, is_drawn=True)
        probs, vocab_map, count = batch.drawn.node_probs, None, batch.num_nodes[3]
        if is_reduced:
            vocab_map, probs = torch.tensor([5, 1, 0, 3, 6]), probs[:, :, :5].softmax(-1)
        drawn = replace(batch.drawn, node_probs=probs, vocab_map=vocab_map)
        last = max(0, count - 1)
        shorter = replace(batch, nodes=[*batch.nodes[:3], batch.nodes[3][:last]], drawn=drawn)
        expected = SAMPLERS[name].verify_with_torch(scores, shorter)
        cut = replace(drawn, token_ids=drawn.token_ids.clone(), node_probs=probs.clone())
        cut.token_ids[3, last:], cut.node_probs[3, last] = -1, 0.0
        there = DeviceNodes(cut.token_ids[None], batch.num_nodes, VOCAB)
        given = replace(batch, nodes=((),) * 4, drawn=cut, device_nodes=there)
        transfer = Transfer(VERIFY[name].arrays(given))
        assert VERIFY[name](scores, replace(given, transfer=transfer)) == expected
        assert SAMPLERS[name].verify_with_torch(scores, given.read()) == expected
        assert there.num_outside == (count > 0)


@pytest.mark.interpreter
@pytest.mark.parametrize("is_tree", [False, True])
@pytest.mark.parametrize("name", [*SAMPLERS][1:])
def test_rows_that_are_not_numbers_are_found_and_greedy_batches_taken(name, is_tree, monkeypatch) -> None:
    use_backends(monkeypatch, OnTheCpu(name))
    sampler = type(SAMPLERS[name])(SamplerConfig())
    scores, batch = problem(3, is_tree=is_tree, is_drawn=False)
    logits, row = scores.logits.clone(), batch.row_starts[2]
    logits[row, 2] = torch.nan
    found = sampler.verify(replace(scores, logits=logits), batch).is_valid
    assert found == [place != row for place in range(len(logits))]
    greedy = replace(batch, sampling_params=[SamplingParams(temperature=0.0)] * 4)
    assert VERIFY[name](scores, greedy) == sampler.verify_with_torch(scores, greedy)


@pytest.mark.interpreter
@pytest.mark.parametrize("is_drawn", [False, True])
@pytest.mark.parametrize("name", [*SAMPLERS][1:])
def test_the_first_row_that_is_not_numbers_is_told_and_other_requests_are_as_without_it(
    name, is_drawn
) -> None:
    found = set()
    for seed in range(12):
        scores, batch = problem(seed, is_tree=False, is_drawn=is_drawn)
        logits, places = scores.logits.clone(), [batch.row_starts[1 + seed % 3]]
        if batch.num_nodes[0]:
            logits[0] = -torch.inf
            logits[0, batch.nodes[0][0]] = 0.0  # which is accepted
            places.append(1)
        expected = SAMPLERS[name].verify_with_torch(Scores(logits, logits), batch)
        logits = logits.clone()
        logits[places[0]], logits[places[-1], 2] = -torch.inf, torch.nan
        got = VERIFY[name](Scores(logits, logits), batch)
        assert got is not None
        broken = set()
        for row, (start, count) in enumerate(zip(batch.row_starts, batch.num_nodes, strict=True)):
            if not {*range(start, start + count + 1)} & {*places}:
                assert got.token_ids[row] == [*expected.token_ids[row]]
            reached = range(start, start + len(got.accepted_nodes[row]) + 1)
            broken |= {*[place for place in reached if place in places][:1]}
        assert {place for place, is_valid in enumerate(got.is_valid or ()) if not is_valid} == broken
        found |= {place in batch.row_starts for place in broken}
    assert found == {True, False}, "after the last committed token, and after drafted ones"


@pytest.mark.interpreter
@pytest.mark.parametrize("name", SAMPLERS)
def test_log_probabilities_are_read_with_the_verdict(name) -> None:
    for seed in range(6):
        is_tree = name == "strict" and seed % 2 == 1
        scores, batch = problem(seed, is_tree=is_tree, is_drawn=False)
        scores = replace(
            scores, raw_logits=torch.randn(scores.logits.shape, generator=torch.Generator().manual_seed(seed))
        )
        batch = replace(batch, num_logprobs=[2, -1, 0, 20])
        got = VERIFY[name](scores, batch)
        assert got is not None
        assert got.listed is not None
        assert set(got.listed) == {0, 2, 3}
        for row, lists in got.listed.items():
            rows = [batch.row_of(row, node) for node in (-1, *got.accepted_nodes[row])]
            expected = listings(scores.raw_logits, rows, got.token_ids[row], VOCAB)
            for (p, rank, ids, values), (own_p, own_rank, own_ids, own_values) in zip(
                lists[: len(expected)], expected, strict=True
            ):
                assert (rank, list(ids)) == (own_rank, list(own_ids))
                # The kernel adds in another order than torch.
                assert [p, *values] == pytest.approx([own_p, *own_values], rel=0, abs=2**-21)


@pytest.mark.interpreter
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_most_probable_ids_are_read_with_the_verdict(name, dtype) -> None:
    scores, batch = problem(1, is_tree=False, is_drawn=False)
    raw = torch.randn(scores.logits.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    scores = replace(scores, raw_logits=raw)
    for count in (1, 3, VOCAB + 2):
        got = VERIFY[name](scores, replace(batch, num_top_k=count))
        values, ids = raw.float().log_softmax(-1).topk(min(count, VOCAB))
        assert torch.equal(got.top_k[0], ids)
        assert torch.allclose(got.top_k[1], values, atol=1e-6)
        assert got == VERIFY[name](scores, batch)
    assert VERIFY[name](scores, batch).top_k is None


class OnTheCpu(Backend):
    """Lends the kernels, in the interpreter, to samplers on the CPU."""

    name: ClassVar[str] = "on_the_cpu"

    def __init__(self, name: str) -> None:
        self._sampler = name

    def verifier(self, sampler: str, device: torch.device) -> Verify | Declined:
        is_mine = SAMPLERS[self._sampler].name == sampler
        return VERIFY[self._sampler] if is_mine else Declined("another sampler")


@pytest.mark.interpreter
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_kernel_that_decides_otherwise_is_not_used(name, monkeypatch, caplog) -> None:
    sampler, cpu = SAMPLERS[name], torch.device("cpu")

    def choose() -> Verify | None:
        use_backends(monkeypatch, OnTheCpu(name))
        return fast_verify(type(sampler), cpu, registry.backends())

    assert choose() is VERIFY[name]
    function = "strict_verify" if name == "strict" else "multinomial"
    honest = getattr(verification, function)

    def wrong(*given: Any, **options: Any) -> Any:
        found = honest(*given, **options)
        (found.token_ids[-1] if name == "strict" else found[-1:])[0] += 1
        return found

    monkeypatch.setattr(verification, function, wrong)
    assert choose() is None
    assert (
        f"the {sampler.name!r} verification of backend on_the_cpu is not used: it decides otherwise"
        in caplog.text
    )


def test_a_kernel_that_raises_is_not_used(monkeypatch, caplog) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("no kernel image")

    backend = OnTheCpu("strict")
    monkeypatch.setattr(backend, "verifier", lambda *_: fail)
    use_backends(monkeypatch, backend)
    sampler = SAMPLERS["strict"]
    assert fast_verify(type(sampler), torch.device("cpu"), registry.backends()) is None
    assert "RuntimeError: no kernel image" in caplog.text
