"""Random schedules on the pretend device: requests arrive, leave and preempt each other, and every text is the CPU's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from pretend import PretendDevice
from pretend.requests import METHODS, TEXT
from pretend.schedules import MAX_LEN, Arrival, draw, serve

from specdec import LLM, RequestOutput

METHODS_HERE: dict[str, dict[str, Any] | None] = METHODS | {
    "ngram_gpu": {"method": "ngram_gpu", "num_speculative_tokens": 4},
}
OPTIONS = {"dtype": "float32", "max_model_len": MAX_LEN, "max_num_seqs": 4, "max_num_batched_tokens": 64}
CACHES = {
    "tiny": {"num_gpu_blocks_override": 14, "enable_prefix_caching": True},
    "large": {"num_gpu_blocks_override": 200, "enable_prefix_caching": False},
}
NUM_SEEDS = 12
"""Schedules of each method and cache: the first at the default level for one cache of each method that does not cost most, slow
for the other one; the others at the full level."""
COSTLY = ("self",)
"""Methods that make many passes."""


def level_of(row: int, seed: int) -> tuple[pytest.MarkDecorator, ...]:
    """Return the marks of a schedule of a row: of a method, and of a cache in turn."""
    if seed % NUM_SEEDS:
        return (pytest.mark.full,)
    method, cache = divmod(row, len(CACHES))
    is_fast = method % len(CACHES) == cache and list(METHODS_HERE)[method] not in COSTLY
    return () if is_fast else (pytest.mark.slow,)


SCHEDULES = [
    pytest.param(served, seed, marks=level_of(row, seed), id=f"{' '.join(served)} {seed}")
    for row, served in enumerate(product(METHODS_HERE, CACHES))
    for seed in range(row * NUM_SEEDS, (row + 1) * NUM_SEEDS)
]


@pytest.fixture(scope="module")
def text() -> list[int]:
    from transformers import AutoTokenizer

    import specdec_zoo

    ids: list[int] = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))(4 * TEXT)["input_ids"]
    return ids


@pytest.fixture(scope="module")
def schedules(request: pytest.FixtureRequest, text: list[int]) -> dict[int, list[Arrival]]:
    """The schedules of the selected tests."""
    selected = [item for item in request.session.items if item.path == request.path]
    seeds = {item.callspec.params["seed"] for item in selected if hasattr(item, "callspec")}
    return {seed: draw(seed, text) for seed in sorted(seeds)}


@pytest.fixture(scope="module")
def expected(schedules: dict[int, list[Arrival]]) -> dict[int, list[RequestOutput]]:
    """What the CPU answers, one step after the other, without drafts and with room for all."""
    llm = LLM("zoo", device="cpu", async_scheduling=False, **OPTIONS | CACHES["large"])
    arrivals = [arrival for each in schedules.values() for arrival in each]
    outputs = iter(
        llm.generate(
            [{"prompt_token_ids": arrival.prompt} for arrival in arrivals],
            [arrival.params.model_copy(update={"prediction": None}) for arrival in arrivals],
            use_tqdm=False,
        )
    )
    llm.shutdown()
    return {seed: [next(outputs) for _ in each] for seed, each in schedules.items()}


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, device: PretendDevice) -> Iterator[LLM]:
    """One engine for all schedules of a method and a cache: what is left of one must not change the next."""
    method, cache = request.param
    config = METHODS_HERE[method]
    fixed = config and config | {"on_proposer_error": "raise", "adaptive": False}
    llm = LLM("zoo", device="cuda:0", speculative_config=fixed, **OPTIONS | CACHES[cache])
    yield llm
    llm.shutdown()


@pytest.mark.parametrize(("served", "seed"), SCHEDULES, indirect=["served"])
@pytest.mark.sampled(1, slow=2)
def test_texts_are_the_cpu_s(
    served: LLM, seed: int, schedules: dict[int, list[Arrival]], expected: dict[int, list[RequestOutput]]
) -> None:
    arrivals = schedules[seed]
    outputs = serve(served, arrivals)
    for arrival, ours, theirs in zip(arrivals, outputs, expected[seed], strict=True):
        for sample, wanted in zip(ours.outputs, theirs.outputs, strict=True):
            if sample.finish_reason == "abort":
                assert arrival.aborted_at is not None
                assert sample.token_ids == wanted.token_ids[: len(sample.token_ids)], arrival
                continue
            assert sample.token_ids == wanted.token_ids, arrival
            assert (sample.text, sample.finish_reason, sample.stop_reason) == (
                wanted.text,
                wanted.finish_reason,
                wanted.stop_reason,
            ), arrival
            assert logprobs(sample.logprobs) == pytest.approx(logprobs(wanted.logprobs), abs=1e-3)
        if "abort" not in [sample.finish_reason for sample in ours.outputs]:
            assert logprobs(ours.prompt_logprobs) == pytest.approx(logprobs(theirs.prompt_logprobs), abs=1e-3)
    engine = served._built.engine
    assert not engine.has_work
    assert engine.kv_cache_usage == 0.0


def logprobs(listed: Any) -> dict[tuple[int, int], float]:
    """Return listed log probabilities by position and token."""
    return {
        (at, token): entry.logprob
        for at, entries in enumerate(listed or ())
        for token, entry in (entries or {}).items()
    }


def test_schedules_reach_what_they_are_for(text: list[int]) -> None:
    """They abort, stop, draw and constrain; several requests run at once."""
    arrivals = [arrival for seed in range(NUM_SEEDS) for arrival in draw(seed, text)]
    keys = Counter(name for arrival in arrivals for name in arrival.keys)
    assert min(keys[name] for name in ("n", "stop", "structured_outputs", "prediction", "logprobs")) >= 3
    assert sum(arrival.aborted_at is not None for arrival in arrivals) >= 5
