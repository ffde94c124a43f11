"""Drafts of methods whose loops a device records: on a pretend device they are the CPU's, and how often the host waits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from dflash_check.shape import Shape, make_head, make_staged
from pretend import Counts, PretendDevice, heads
from pretend.requests import params, text_ids
from safetensors.torch import load_file, save_file

import specdec_zoo
from specdec import LLM, RequestOutput, SamplingParams, StructuredOutputsParams
from specdec.engine import Step
from specdec.interfaces import Verdict

OPTIONS = {
    "dtype": "float32", "max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 96, "num_gpu_blocks_override": 400,
    "enable_prefix_caching": False,
}  # fmt: skip
NUM_TOKENS = 20


def peagle(folder: Path) -> dict[str, Any]:
    """Write the zoo's head with a mask token and a state for it that nobody trained."""
    shutil.copytree(specdec_zoo.path("eagle3"), folder, dirs_exist_ok=True)
    tensors = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    tensors["mask_hidden"] = torch.randn(1, tensors["fc.weight"].shape[1], generator=generator)
    save_file(tensors, folder / "model.safetensors")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"mask_token_id": 3}))
    more = {"num_speculative_tokens": 4, "parallel_drafting": True}
    return {"method": "eagle3", "model": str(folder), **more}


Drafts = dict[tuple[str, int], list[int]]
"""The tokens of every draft, by request and length of its text."""


def dflash(
    folder: Path, *, predicts_at_anchor: bool = False, family: str | None = None, **inner: Any
) -> dict[str, Any]:
    """Write a head whose guesses depend on the text and on each other."""
    sizes = {"hidden": 256, "target_hidden": 256, "head_dim": 64, "num_target_layers": 15, "aux": (2, 7, 12)}
    shape = Shape(vocab=4096, num_logits=4096, predicts_at_anchor=predicts_at_anchor, **sizes)
    if family is None:
        make_head(folder, shape)
    else:
        make_staged(folder, shape, family)
    tensors = load_file(folder / "model.safetensors")
    strong = {"q_proj": 6.0, "k_proj": 6.0, "v_proj": 12.0, "o_proj": 12.0}
    for name in tensors:
        tensors[name] *= next((by for part, by in strong.items() if part in name), 1.0)
    save_file(tensors, folder / "model.safetensors")
    file = folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"dflash_config": config["dflash_config"] | inner}))
    return {"method": "dflash", "model": str(folder), "num_speculative_tokens": 4}


def drafts(
    kind: str,
    config: dict[str, Any],
    place: str,
    prompts: list[list[int]],
    device: PretendDevice | None = None,
) -> tuple[Drafts, list[Counts]]:
    """Return all drafts of a greedy generation, and what each step asked a device for."""
    found, steps = Drafts(), list[Counts]()
    config = config | {"on_proposer_error": "raise", "adaptive": False}
    llm = LLM("zoo", device=place, speculative_config=config, **OPTIONS)
    engine = llm._built.engine
    commit, step = engine._committer.commit, engine.step

    def watched(done: Step, verdict: Verdict) -> None:
        for row in done.rows:
            if row.chunk and row.is_sampled:
                found[row.sequence.row_id.rpartition("-")[2], row.num_tokens] = list(row.nodes)
        commit(done, verdict)

    def counting() -> list[RequestOutput]:
        device.counted()
        outputs = step()
        steps.append(device.counted())
        return outputs

    engine._committer.commit = watched
    if device is not None:
        engine.step = counting
    given = params("greedy", len(prompts), NUM_TOKENS)
    if "ends" in kind:  # its last token has no draft, while the others have
        given = [SamplingParams(temperature=0.0, max_tokens=12 + 9 * row) for row in range(len(prompts))]
    if "grammar" in kind:
        rule = StructuredOutputsParams(regex="[a-z]{3,9}( [0-9]+)*")
        given[-1] = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, structured_outputs=rule)
    llm.generate(prompts, given)
    llm.shutdown()
    return found, steps


SIBLINGS = {"num_speculative_tokens": 6, "tree_top_k": 2}
"""Trees whose shape the host knows."""
KINDS = {
    "dflash": dflash,
    "dflash at the anchor": lambda folder: dflash(folder, predicts_at_anchor=True),
    "causal dflash": lambda folder: dflash(folder, is_causal=True),
    "dflash beside a grammar": dflash,
    "dspark": lambda folder: dflash(folder, family="dspark"),
    "xpress": lambda folder: dflash(folder, family="xpress"),
    "parallel": lambda folder: heads.make("parallel", folder),
    "masks of a head": peagle,
    "lookup": lambda _: {"method": "ngram_gpu", "num_speculative_tokens": 4},
    "siblings": lambda _: {"method": "draft_model", "model": "zoo", **SIBLINGS},
    "siblings of a head": lambda _: {"method": "mtp", "model": "zoo", **SIBLINGS},
    "siblings without a cache": lambda folder: heads.make("mlp", folder) | SIBLINGS,
    "siblings of masks": lambda folder: dflash(folder) | SIBLINGS,
    "trees beside a text that ends": lambda _: {
        "method": "eagle3", "model": "zoo", "num_speculative_tokens": 8, "tree_top_k": 2, "tree_depth": 3,
    },
    "a threshold": lambda _: {
        "method": "draft_model", "model": "zoo", "num_speculative_tokens": 4, "draft_confidence_threshold": 0.5
    },
}  # fmt: skip
OFTEN = ("dflash", "siblings", "lookup", "trees beside a text that ends")
"""Kinds that are not for the slow tests alone."""
MOST_WAITS = {"a threshold": 2, "dflash beside a grammar": 13, "dspark": 4, "xpress": 4}
"""Of a step; one of others."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=[pytest.mark.slow] * (kind not in OFTEN)) for kind in KINDS],
)
def expected(request, tmp_path_factory) -> tuple[str, dict[str, Any], list[list[int]], Drafts]:
    """A kind, its configuration, prompts, and what is drafted on the CPU."""
    ids = text_ids()
    config = KINDS[request.param](tmp_path_factory.mktemp("head"))
    prompts = [ids[row:] for row in range(3)]
    return request.param, config, prompts, drafts(request.param, config, "cpu", prompts)[0]


@pytest.mark.sampled(1, slow=1)
def test_drafts_are_those_of_the_cpu(expected, device) -> None:
    kind, config, prompts, on_cpu = expected
    on_device, steps = drafts(kind, config, "cuda:0", prompts, device)
    assert len({tuple(row) for row in on_cpu.values()}) > 5
    assert on_device.keys() == on_cpu.keys()
    for place, row in on_cpu.items():  # a lookup on a device fills its rows
        assert on_device[place][: len(row) if kind == "lookup" else None] == row, place
    assert max(step.synchronisations for step in steps) <= MOST_WAITS.get(kind, 1)
    assert not any(step.recordings or step.compilations for step in steps)
