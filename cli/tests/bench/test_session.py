"""One engine, one turn: the text is what `LLM` gives, and measuring leaves no trace."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from speccheck.proposers import Scripted

from specdec import LLM
from specdec.interfaces import FinishReason
from specdec_cli.bench import BASELINE, Contender, Session, Workload, session
from specdec_cli.bench.forward_probe import ForwardProbe
from specdec_runtime.loading.target import LoadedTarget


def test_text_is_that_of_llm(target: LoadedTarget, workload: Workload, texts: list[list[int]]) -> None:
    llm = LLM(target.model, tokenizer=target.tokenizer)
    params = [workload.params(index) for index in range(len(workload.prompts))]
    outputs = llm.generate([list(prompt) for prompt in workload.prompts], params)
    assert [out.prompt_token_ids + out.outputs[0].token_ids for out in outputs] == texts


@pytest.mark.parametrize("batch_size", [1, 2, 8])
@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.sampled(2, slow=2)
def test_passes_that_run_twice_change_nothing(
    target: LoadedTarget,
    workload: Workload,
    texts: list[list[int]],
    knowing: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    batch_size: int,
    shape: str,
) -> None:
    monkeypatch.setattr(
        "specdec_cli.bench.session.ForwardProbe", lambda device: ForwardProbe(device, every=1)
    )
    config = {**knowing, "shape": shape, "wrong": 0.2}
    session = Session(target, Contender("x", "x", config), replace(workload, batch_size=batch_size))
    session.warm_up()
    turn = session.run()
    session.close()
    assert [[*p, *ids] for p, ids in zip(workload.prompts, turn.token_ids, strict=True)] == texts
    assert sum(output.metrics.num_accepted_tokens for output in turn.outputs) > 10
    assert all(entry.forward_ms is not None for entry in turn.steps)


def test_no_more_requests_in_flight_than_the_batch_size(
    target: LoadedTarget, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(target, BASELINE, replace(workload, batch_size=2))
    engine, seen, done = session._built.engine, [], []
    step = engine.step

    def spy() -> Any:
        seen.append(len(engine._requests))
        return step()

    monkeypatch.setattr(engine, "step", spy)
    session.run(on_done=lambda: done.append(1))
    assert max(seen) == 2
    assert len(done) == len(workload.prompts)


def test_warming_up_teaches_nothing(
    target: LoadedTarget, workload: Workload, knowing: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[FinishReason] = []
    monkeypatch.setattr(Scripted, "finish", lambda self, ids, reason: reasons.extend([reason] * len(ids)))
    session = Session(target, Contender("x", "x", knowing), workload)
    session.warm_up()
    assert reasons == [FinishReason.ABORT]
    session.run()
    assert len(reasons) == 1 + len(workload.prompts)
    assert set(reasons[1:]) <= {FinishReason.LENGTH, FinishReason.STOP}


def test_deterministic_workloads_get_such_an_engine(
    target: LoadedTarget, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []
    make = session.build

    def spy(model: Any, config: Any, arguments: dict[str, Any]) -> Any:
        given.append(arguments)
        return make(model, config, arguments | {"deterministic": False})

    monkeypatch.setattr(session, "build", spy)
    for is_deterministic in (False, True):
        Session(target, BASELINE, replace(workload, is_deterministic=is_deterministic))
    assert [arguments["deterministic"] for arguments in given] == [False, True]


@pytest.mark.parametrize("is_cached", [False, True])
def test_prefixes_are_cached_where_that_is_asked_for(
    target: LoadedTarget, workload: Workload, *, is_cached: bool
) -> None:
    """The warm-up, which runs the first prompt as well, leaves nothing of it."""
    prompt = tuple(range(1, 41))
    twice = replace(workload, prompts=(prompt, prompt), max_tokens=2, is_prefix_cached=is_cached)
    session = Session(target, BASELINE, twice)
    session.warm_up()
    assert [output.num_cached_tokens for output in session.run().outputs] == [0, 32 if is_cached else 0]


def test_times_add_up_to_the_wall(target: LoadedTarget, workload: Workload) -> None:
    turn = Session(target, BASELINE, workload).run()
    spent = sum(entry.propose_ms + entry.score_ms + entry.verify_ms + entry.other_ms for entry in turn.steps)
    twice = sum(entry.forward_ms or 0.0 for entry in turn.steps)
    assert turn.wall_s == pytest.approx((spent - twice) / 1e3, rel=0.1, abs=0.05)
    assert turn.num_tokens == sum(map(len, turn.token_ids)) == len(turn.steps)
    assert turn.peak_memory_mb > (1.0 if sys.platform == "linux" else 0.0)


def test_weights_are_shared_and_the_target_serves_again(target: LoadedTarget, workload: Workload) -> None:
    first, second = Session(target, BASELINE, workload), Session(target, BASELINE, workload)
    assert first._built.scorer.target.model is second._built.scorer.target.model  # type: ignore[attr-defined]
    assert first.run().token_ids == second.run().token_ids == first.run().token_ids
