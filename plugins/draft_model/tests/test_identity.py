"""The text is the target's, whatever the draft; a draft that is the target is accepted whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from speccheck.engines import zoo
from speccheck.own_vocabulary import own_vocabulary_draft

import specdec_zoo
from specdec import LLM, RequestOutput, SamplingParams

K = (1, 5, 8, 16)
BATCHES = (1, 7, 32)
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"draft_sample_method": "greedy"},
    "coupled": {},
    "tree": {"tree_top_k": 2},
    "parallel": {"parallel_drafting": True},
    "own vocabulary": {
        "model": own_vocabulary_draft(),
        "use_heterogeneous_vocab": True,
    },
}


def _level(kind: str, size: tuple[int, int]) -> tuple[pytest.MarkDecorator, ...]:
    """Each kind has one size at the default level, in turn, and the other one among slow tests."""
    sizes = (5, 7), (16, 1)
    if size not in sizes:
        return (pytest.mark.full,)
    return () if list(KINDS).index(kind) % 2 == sizes.index(size) else (pytest.mark.slow,)


GRID = [
    pytest.param(kind, k, batch, marks=_level(kind, (k, batch)))
    for kind in KINDS
    for k in K
    for batch in BATCHES
]


@pytest.fixture(scope="module")
def parallel_draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The causal draft with a mask token, which it has not learnt: its first guess is good, the others are not."""
    folder = tmp_path_factory.mktemp("parallel") / "draft"
    shutil.copytree(specdec_zoo.path("draft"), folder)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pard_token": 3}))
    return folder


@pytest.fixture(scope="module")
def make_llm(parallel_draft: Path) -> Callable[..., LLM]:
    def make(**keys: Any) -> LLM:
        if keys.get("parallel_drafting"):
            keys["model"] = str(parallel_draft)
        config = {"method": "draft_model", "model": "zoo", "on_proposer_error": "raise", **keys}
        return LLM(zoo(), speculative_config=config, strict_drafts=True)

    return make


@pytest.fixture(scope="module")
def plain() -> Callable[[int, float], list[list[int]]]:
    llm = LLM(zoo())
    known: dict[tuple[int, float], list[list[int]]] = {}

    def tokens(batch: int, temperature: float) -> list[list[int]]:
        if (batch, temperature) not in known:
            known[batch, temperature] = run(llm, batch, temperature)
        return known[batch, temperature]

    return tokens


def outputs(llm: LLM, batch: int, temperature: float) -> list[RequestOutput]:
    prompts = [prompt["prompt"] for prompt in specdec_zoo.prompts(batch)]
    params = [
        SamplingParams(temperature=temperature, seed=i, max_tokens=32, ignore_eos=True) for i in range(batch)
    ]
    return llm.generate(prompts, params)


def run(llm: LLM, batch: int, temperature: float) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs(llm, batch, temperature)]


@pytest.mark.parametrize(("kind", "k", "batch"), GRID)
@pytest.mark.sampled(2, slow=3)
def test_text_is_that_of_plain_decoding(make_llm, plain, kind, k, batch):
    llm = make_llm(num_speculative_tokens=k, **KINDS[kind])
    for temperature in (0.0, 0.8):
        assert run(llm, batch, temperature) == plain(batch, temperature)


@pytest.mark.parametrize(
    ("temperature", "keys"),
    [
        (0.0, {}),
        (0.0, {"tree_top_k": 2}),
        (0.8, {}),
        (1.0, {"rejection_sample_method": "probabilistic"}),
        (1.0, {"rejection_sample_method": "block"}),
    ],
)
@pytest.mark.sampled(2, slow=1)
def test_a_draft_that_is_the_target_is_accepted_whole(make_llm, temperature, keys):
    llm = make_llm(model=str(specdec_zoo.path("target")), num_speculative_tokens=4, **keys)
    metrics = [output.metrics for output in outputs(llm, 8, temperature)]
    accepted = sum(m.num_accepted_tokens for m in metrics)
    drafted = sum(m.num_draft_tokens for m in metrics) // keys.get("tree_top_k", 1)
    assert drafted > 150
    if "tree_top_k" in keys:  # the last draft of a request may be cut to an odd number of nodes
        assert accepted >= drafted
    elif "rejection_sample_method" not in keys:
        assert accepted == drafted
    else:
        assert accepted >= 0.99 * drafted


def test_weights_of_the_targets_own_directory_are_shared(make_llm):
    llm = make_llm(model=str(specdec_zoo.path("target")), num_speculative_tokens=2)
    engine = llm._built.engine
    ours, theirs = engine.proposer._runner.module, engine._scorer.target.model
    assert ours is not theirs
    for name, parameter in theirs.named_parameters():
        assert ours.get_parameter(name).data_ptr() == parameter.data_ptr(), name
