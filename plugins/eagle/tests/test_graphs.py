"""Heads whose passes are recorded and replayed draft what heads draft whose passes are not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from eagle_check.layout import Layout
from eagle_check.session import config_of
from eagle_check.shape import Shape
from eagle_check.targets import make_head
from head_check.target import VOCAB, target_model
from speccheck.recorder import RecordingBackend, Rerun, told, use_backends

from specdec import LLM, SamplingParams
from specdec_runtime.drafting import HeadProposer

SHAPE = Shape(num_logits=40, has_map=True)
PROMPTS = [[(i * i + 7 * i + n) % VOCAB for i in range(n)] for n in (11, 1)]
PARAMS = [SamplingParams(temperature=1.0, seed=seed, max_tokens=10, ignore_eos=True) for seed in range(2)]


def make_llm(folder: str, keys: dict[str, Any]) -> tuple[LLM, HeadProposer]:
    config = {"method": "eagle3", "model": folder, "num_speculative_tokens": 4, "on_proposer_error": "raise"}
    llm = LLM(
        copy.deepcopy(target_model()),
        speculative_config=config | {"rejection_sample_method": "probabilistic"} | keys,
        max_model_len=96,
        skip_tokenizer_init=True,
        attention_backend="triton",
        device="cpu",
    )
    return llm, llm._built.engine.proposer


@pytest.mark.interpreter
@pytest.mark.parametrize(("kind", "num_prompts"), [("chain", 2), ("drawn tree", 1)])
def test_drafts_of_recorded_passes(
    tmp_path: Path, kind: str, num_prompts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = make_head(tmp_path, SHAPE, Layout(aux_ids=(1, 3, 6)))
    file = Path(path) / "config.json"
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"max_position_embeddings": 14})
    )  # heads go beyond
    seen = []
    for recorder in (None, Rerun()):
        use_backends(monkeypatch, RecordingBackend(recorder))
        llm, proposer = make_llm(path, config_of(kind))
        outputs = llm.generate(PROMPTS[:num_prompts], PARAMS[:num_prompts])
        seen.append(told(llm, outputs))
    assert seen[0] == seen[1]
    ((form, _),) = proposer._runner.forms
    counts, levels = form.counts(), form.levels()
    assert counts["graph_failures"] == 0
    assert counts["graph_replays"] >= levels["graph_recordings"] > 0
    if kind == "chain":  # tokens are chosen in the recording too
        loops = proposer._runner.chain
        assert loops.failure is None
        assert loops.num_replays > loops.num_recordings > 0
