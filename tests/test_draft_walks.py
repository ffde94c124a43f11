"""What fails or costs too much along a draft ends that draft, never the request: over every method and every kind of work."""

from __future__ import annotations

import json
import logging
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from dflash_check.shape import Shape, make_head
from safetensors.torch import save_file
from speccheck.ahead import FAULTS

import specdec_zoo
from specdec import LLM, EngineOptions, RequestOutput, SamplingParams
from specdec.config import notices
from specdec_plugin_mlp import Medusa, MedusaLayout, MLPSpeculator, MLPSpeculatorLayout, save_mlp_speculator
from specdec_runtime.loading.target import LoadedTarget, load_target

TOKENS = 20
NUM_PROMPTS = 3
EAGLE3 = {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3}
SCRIPTED = {"method": "speccheck.proposers.Scripted", "num_speculative_tokens": 4, "wrong": 0.4}
METHODS: dict[str, dict[str, Any] | None] = {
    "no method": None,
    "chain": {**SCRIPTED, "shape": "chain"},
    "tree": {**SCRIPTED, "shape": "tree"},
    "ngram": {"method": "ngram", "prompt_lookup_min": 1},
    "suffix": {"method": "suffix"},
    "recycling": {"method": "recycling", "num_speculative_tokens": 8},
    "self": {"method": "self", "skip_layers": [1, 3, 4, 6, 7, 8, 9, 10, 11, 13]},
    "draft_model": {"method": "draft_model", "model": "zoo"},
    "eagle": {"method": "eagle", "model": "zoo"},
    "eagle3": EAGLE3,
    "eagle3 tree": {**EAGLE3, "tree_top_k": 3, "num_speculative_tokens": 6},
    "mtp": {"method": "mtp", "model": "zoo"},
    "mlp": {"method": "mlp"},
    "medusa": {"method": "medusa"},
    "dflash": {"method": "dflash"},
    "composite": {"method": "composite", "proposers": [{"method": "suffix"}, EAGLE3]},
    "composite, extend": {
        "method": "composite",
        "policy": "extend",
        "proposers": [EAGLE3, {"method": "suffix"}],
    },
    "composite, merge": {
        "method": "composite",
        "policy": "merge",
        "proposers": [{"method": "suffix", "use_tree_spec": True}, {**EAGLE3, "tree_top_k": 2}],
    },
}
FAST = ("no method", "chain", "tree", "ngram")
PREDICTIONS = ("a prediction", "following a prediction", "learning of a prediction")
UNTOLD = ("a processor", "what a proposer asks", *PREDICTIONS)
"""Faults that say nothing, or that no scripted draft brings about."""


@cache
def target() -> LoadedTarget:
    return load_target(EngineOptions(model="zoo", dtype="float32"))


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Random heads of the methods for which the zoo has none."""
    torch.manual_seed(1)
    folders: dict[str, Path] = {name: tmp_path_factory.mktemp(name) for name in ("mlp", "medusa", "dflash")}
    save_mlp_speculator(
        MLPSpeculator(MLPSpeculatorLayout(vocab_size=4096, emb_dim=256, inner_dim=24, n_predict=3)),
        folders["mlp"],
    )
    sizes = {"hidden_size": 256, "vocab_size": 4096, "num_heads": 3, "num_hidden_layers": 1}
    (folders["medusa"] / "config.json").write_text(json.dumps({"model_type": "medusa", **sizes}))
    save_file(Medusa(MedusaLayout(**sizes)).state_dict(), folders["medusa"] / "model.safetensors")
    make_head(
        folders["dflash"],
        Shape(
            vocab=4096, hidden=256, target_hidden=256, head_dim=64, intermediate=320, num_logits=512, has_map=True,
            has_own_lm_head=True, mask_id=4095, aux=(2, 5), num_target_layers=15,
        ),
    )  # fmt: skip
    return {name: str(folder) for name, folder in folders.items()}


@cache
def plain(temperature: float) -> list[list[int]]:
    """What plain decoding says: without a method, and nothing along any draft."""
    return texts(LLM(target(), max_model_len=256).generate(prompts(), [params(temperature)] * NUM_PROMPTS))


@cache
def prompts() -> list[str]:
    return [prompt["prompt"][:80] for prompt in specdec_zoo.prompts(NUM_PROMPTS)]


def params(temperature: float = 0.0, **keys: Any) -> SamplingParams:
    return SamplingParams(temperature=temperature, seed=5, max_tokens=TOKENS, min_tokens=TOKENS, **keys)


def texts(outputs: list[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


@pytest.fixture(
    scope="module", params=[pytest.param(m, marks=[pytest.mark.slow] * (m not in FAST)) for m in METHODS]
)
def llm(request: pytest.FixtureRequest) -> LLM:
    keys = METHODS[request.param]
    if keys is not None:
        keys = {"num_speculative_tokens": 3, "adaptive": False, "on_proposer_error": "raise", **keys}
        if keys["method"] in ("mlp", "medusa", "dflash"):
            keys["model"] = request.getfixturevalue("heads")[keys["method"]]
        if keys["method"] == SCRIPTED["method"]:
            asked = [target().tokenizer(prompt)["input_ids"] for prompt in prompts()]
            keys["texts"] = [[*a, *b] for a, b in zip(asked, plain(0.0), strict=True)]
    return LLM(target(), speculative_config=keys, max_model_len=256, max_num_seqs=4)


@pytest.mark.filterwarnings("ignore:.*lowers acceptance")
@pytest.mark.parametrize(
    ("fault", "temperature"),
    [
        pytest.param(fault, temperature, marks=() if place % 2 == turn else pytest.mark.slow)
        for place, fault in enumerate(FAULTS)
        for turn, temperature in enumerate((0.8, 0.0))
    ],
)
@pytest.mark.sampled(16, slow=64)
def test_what_fails_along_a_draft_changes_no_text(
    llm: LLM,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: str,
    temperature: float,
) -> None:
    notices.reset()
    expected = plain(temperature)
    keys = FAULTS[fault](monkeypatch, llm, expected[1])
    mixed = [params(temperature), params(temperature, **keys), params(temperature)]
    outputs = llm.generate(prompts(), mixed)
    assert [output.outputs[0].stop_reason for output in outputs] == [None] * NUM_PROMPTS
    assert texts(outputs) == expected
    assert llm._built.engine.metrics.proposer_errors == 0, (
        "it is not the proposer's fault, which others would pay for"
    )
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]
    assert not llm._built.engine.has_work
    is_told = fault in PREDICTIONS if llm.method is None else fault not in UNTOLD
    if is_told and llm.method in (None, SCRIPTED["method"]):
        assert any("along a draft" in record.message for record in caplog.records), "it did fail"
