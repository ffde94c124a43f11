"""Drafts that begin on the device before the host has the last verdict: they are those that the host would ask for."""

from __future__ import annotations

from typing import Any

import pytest
from pretend.requests import METHODS, text_ids

from specdec import LLM, RequestOutput, SamplingParams
from specdec.engine import Engine, Step
from specdec.engine.commit import Committer
from specdec.interfaces import NeedsTokens, Verdict
from specdec_kernels.cuda.graphs.draft_graphs import DraftGraphs
from specdec_runtime.interfaces import ChainWork

OPTIONS = {
    "dtype": "float32", "max_model_len": 256, "max_num_seqs": 4, "max_num_batched_tokens": 64, "num_gpu_blocks_override": 200,
    "enable_prefix_caching": False,
}  # fmt: skip
LENGTHS = (60, 42, 52)
SIBLINGS = {
    "siblings": {"method": "mtp", "model": "zoo", "num_speculative_tokens": 6, "tree_top_k": 2},
    "siblings of a model": {
        "method": "draft_model",
        "model": "zoo",
        "num_speculative_tokens": 6,
        "tree_top_k": 2,
    },
}


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    ids = text_ids()
    return [ids[: len(ids) - 3 * row] for row in range(3)]


@pytest.fixture(scope="module")
def expected(prompts) -> list[RequestOutput]:
    """What plain decoding on the CPU answers."""
    llm = LLM("zoo", device="cpu", **OPTIONS)
    outputs = llm.generate(prompts, params())
    llm.shutdown()
    return outputs


def params(temperature: float = 0.0) -> list[SamplingParams]:
    return [
        SamplingParams(temperature=temperature, seed=count, max_tokens=count, ignore_eos=True)
        for count in LENGTHS
    ]


@pytest.mark.slow
def test_they_end_where_the_tables_of_their_recording_do(device, prompts, monkeypatch) -> None:
    """Contexts of 256 tokens and fewer have a recording of their own."""
    with monkeypatch.context() as patch:
        watched = Watched(patch, may_begin=True)
        options = OPTIONS | {"max_model_len": 320}
        config = METHODS["draft_model"] | {"adaptive": False, "on_proposer_error": "raise"}
        llm = LLM("zoo", device="cuda:0", speculative_config=config, **options)
        given = SamplingParams(temperature=0.0, max_tokens=48, ignore_eos=True)
        prompt = (prompts[0] * 20)[:230]
        outputs = llm.generate([prompt], given)
        llm.shutdown()
    plain = LLM("zoo", device="cpu", **options)
    assert outputs[0].outputs[0].token_ids == plain.generate([prompt], given)[0].outputs[0].token_ids
    plain.shutdown()
    assert watched.num_used >= 2


@pytest.mark.slow
def test_known_chains_beside_a_loop_may_be_longer_than_its_own(device) -> None:
    """A head runs the new tokens of every request, so a loop has rows of one for which another method drafted more."""
    config = {
        "method": "composite", "policy": "cascade", "adaptive": False, "on_proposer_error": "raise",
        "proposers": [
            {"method": "ngram", "num_speculative_tokens": 8},
            {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3},
        ],
    }  # fmt: skip
    prompts = ["a = 1\nb = 2\nc = 3\nd = 4\n" * 2 + "x = 1\n", "The history of the small town begins with"]
    given = SamplingParams(temperature=0.0, max_tokens=44, ignore_eos=True)
    llm = LLM("zoo", device="cuda:0", speculative_config=config, **OPTIONS)
    outputs = llm.generate(prompts, given)
    assert outputs[0].metrics.accepted_per_position[7] > 0
    llm.shutdown()
    plain = LLM("zoo", device="cpu", **OPTIONS)
    for output, wanted in zip(outputs, plain.generate(prompts, given), strict=True):
        assert output.outputs[0].token_ids == wanted.outputs[0].token_ids
    plain.shutdown()


class Watched:
    """The drafts that are verified, and how many were made, and taken, before the host had the last verdict."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, may_begin: bool) -> None:
        self.drafts, self.num_prelaunched, self.num_used = list[list[list[int]]](), 0, 0
        follow, launch, commit = DraftGraphs._replay_behind, Engine._launch, Committer.commit

        def following(graphs: DraftGraphs, work: ChainWork) -> Any:
            if work.is_unread and not may_begin:
                raise NeedsTokens
            outputs = follow(graphs, work)
            self.num_prelaunched += work.is_unread
            return outputs

        def launching(engine: Engine, step: Step) -> Step:
            is_behind, launched = step.behind is not None, launch(engine, step)
            self.num_used += is_behind and any(row.num_nodes for row in step.rows)
            return launched

        def committing(committer: Committer, step: Step, verdict: Verdict) -> None:
            rows = [list(row.nodes) for row in step.rows if row.chunk]
            if any(rows):
                self.drafts.append(rows)
            commit(committer, step, verdict)

        monkeypatch.setattr(DraftGraphs, "_replay_behind", following)
        monkeypatch.setattr(Engine, "_launch", launching)
        monkeypatch.setattr(Committer, "commit", committing)


def made(method: str, sampler: str = "strict") -> LLM:
    config = (METHODS | SIBLINGS)[method] | {"adaptive": False, "on_proposer_error": "raise"}
    config |= {"rejection_sample_method": sampler}
    return LLM("zoo", device="cuda:0", speculative_config=config, **OPTIONS)


def served(
    llm: LLM, prompts, monkeypatch: pytest.MonkeyPatch, *, may_begin: bool, abort_at: int | None = None,
    temperature: float = 0.0,
):  # fmt: skip
    """Return what all requests, of which one may be aborted in some step, were answered, and what was drafted."""
    with monkeypatch.context() as patch:
        watched = Watched(patch, may_begin=may_begin)
        engine, outputs, tick = llm._built.engine, dict[str, RequestOutput](), 0
        for row, (prompt, own) in enumerate(zip(prompts, params(temperature), strict=True)):
            engine.add(
                llm._input_processor.prepare(str(row), {"prompt_token_ids": prompt}, own, is_streaming=False)
            )
        while engine.has_work:
            if tick == abort_at:
                outputs |= {o.request_id: o for o in engine.abort(["1"])}
            outputs |= {o.request_id: o for o in engine.step()}
            tick += 1
    return [outputs[str(row)] for row in range(len(prompts))], watched


@pytest.mark.parametrize(
    ("method", "abort_at"),
    [
        ("draft_model", None),
        ("eagle3-tree", 5),
        *(pytest.param(method, 5, marks=pytest.mark.slow) for method in ("eagle3", *SIBLINGS)),
        *(
            pytest.param(*each, marks=pytest.mark.full)
            for each in [
                ("draft_model", 5),
                ("eagle3", None),
                ("eagle3-tree", None),
                ("mtp", None),
                ("mtp", 5),
            ]
        ),
    ],
)
@pytest.mark.sampled(0, slow=1)
def test_they_are_the_same(method: str, abort_at: int | None, device, prompts, expected, monkeypatch) -> None:
    llm = made(method)
    outputs, watched = served(llm, prompts, monkeypatch, may_begin=True, abort_at=abort_at)
    wanted, alone = served(llm, prompts, monkeypatch, may_begin=False, abort_at=abort_at)
    llm.shutdown()
    for ours, theirs, own in zip(outputs, wanted, expected, strict=True):
        assert ours.outputs[0].token_ids == theirs.outputs[0].token_ids
        assert ours.outputs[0].token_ids == own.outputs[0].token_ids[: len(ours.outputs[0].token_ids)]
        assert ours.metrics.num_accepted_tokens == theirs.metrics.num_accepted_tokens
    assert watched.drafts == alone.drafts
    assert watched.num_used >= 4
    assert watched.num_prelaunched - watched.num_used <= (1 if abort_at is None else 2), "begun for nothing"
    assert alone.num_used == 0


@pytest.mark.parametrize(
    ("sampler", "method"),
    [
        ("probabilistic", "draft_model"),
        pytest.param("block", "eagle3", marks=pytest.mark.slow),
        pytest.param("strict", "eagle3", marks=pytest.mark.full),
        *(pytest.param("strict", method, marks=pytest.mark.slow) for method in ("eagle3-tree", *SIBLINGS)),
        *(pytest.param(sampler, "draft_model", marks=pytest.mark.full) for sampler in ("strict", "block")),
        pytest.param("probabilistic", "eagle3", marks=pytest.mark.full),
    ],
)
@pytest.mark.sampled(0, slow=1)
def test_they_are_the_same_at_a_temperature(sampler: str, method: str, device, prompts, monkeypatch) -> None:
    llm = made(method, sampler)
    outputs, watched = served(llm, prompts, monkeypatch, may_begin=True, temperature=0.8)
    wanted, alone = served(llm, prompts, monkeypatch, may_begin=False, temperature=0.8)
    llm.shutdown()
    for ours, theirs in zip(outputs, wanted, strict=True):
        assert ours.outputs[0].token_ids == theirs.outputs[0].token_ids
        assert ours.metrics.num_accepted_tokens == theirs.metrics.num_accepted_tokens
    assert watched.drafts == alone.drafts
    assert watched.num_used >= 4
    assert watched.num_prelaunched - watched.num_used <= 1, "begun for nothing"
