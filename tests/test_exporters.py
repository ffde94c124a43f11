"""Heads that speculators, ModelOpt, SpecForge, z-lab and DeepSpec made and saved: every drafted logit is the exporter's own.

`scripts/exporter_heads` writes them. The exporter's modules run over whole texts; ours in chunks, after partial acceptance,
and after delivery from the start and from inside.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from packages import ROOT
from speccheck.exported import FOLDER, HEADS, NUM_LAYERS, PLAN, Key, drafted, expected, load, target
from torch import Tensor

from specdec_plugin_dflash import DFlashHead, forced_logits, run_blocks

TOLERANCE = 1e-5
"""Of the largest logit, as in the parity tests of the plugins."""


def worst(got: dict[Key, Tensor], wanted: dict[Key, Tensor]) -> float:
    """Return the largest difference, relative to the largest logit; ids that a head never drafts have none."""
    assert got.keys() == wanted.keys()
    ours, theirs = (torch.stack([rows[key] for key in wanted]) for rows in (got, wanted))
    can = theirs > -torch.inf
    assert torch.equal(can, ours > -torch.inf)
    return float((ours - theirs)[can].abs().max()) / max(1.0, float(theirs[can].abs().max()))


@pytest.mark.parametrize("is_fused", [False, True], ids=["own forward", "compiled"])
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.sampled(20, slow=20)
def test_logits_are_the_exporters(name: str, is_fused: bool) -> None:
    proposer = load(name, is_fused=is_fused)
    layers = HEADS[name]["layers"]
    assert list(proposer.aux_layer_ids) == [layer for layer in layers if layer >= 0]
    assert worst(drafted(proposer), expected(name)) < TOLERANCE


@pytest.mark.parametrize("is_fused", [False, True], ids=["own forward", "compiled"])
@pytest.mark.parametrize("name", [name for name in HEADS if "peagle" in name])
def test_all_tokens_at_once(name: str, is_fused: bool) -> None:
    """Drafts of P-EAGLE heads, from mask tokens."""
    proposer = load(name, is_fused=is_fused, parallel_drafting=True)
    assert worst(drafted(proposer), expected(name, "at_once")) < TOLERANCE


def test_dflash2_in_the_layout_of_z_lab(tmp_path: Path) -> None:
    """The same tensors, with the keys of the head in `dflash_config` and layers of which outputs are counted."""
    name = "speculators/dflash2"
    shutil.copytree(FOLDER / name, tmp_path, dirs_exist_ok=True)
    own = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    inner = {key: own[key] for key in own if key.startswith(("conv_", "selector_", "mask_"))}
    inner["target_layer_ids"] = [layer - 1 for layer in own["aux_hidden_state_layer_ids"]]
    config = own["transformer_layer_config"] | {"block_size": own["block_size"], "dflash_config": inner}
    config |= {"architectures": ["DFlash2DraftModel"], "num_target_layers": NUM_LAYERS}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    proposer = load(name, is_fused=False, model=str(tmp_path))
    assert worst(drafted(proposer), expected(name)) < TOLERANCE


WHOLE = (
    "specforge/domino",
    "speculators/dflash2",
    "speculators/dflash_window",
    "speculators/dspark_bonus_anchor",
    "speculators/xpress",
    "speculators/xpress_at_anchor",
)
"""Heads of which some blocks are as long as they can be."""


@pytest.mark.parametrize("name", WHOLE)
def test_whole_blocks_given_their_tokens(name: str) -> None:
    """What training and `check-head` run gives the same logits, of blocks that are as long as they can be."""
    proposer, num_compared = load(name, is_fused=False), 0
    head: DFlashHead = proposer._drafter._head  # type: ignore[attr-defined]  # of this plugin
    for (text, length, path), logits in expected(name).items():
        longest = max(len(row[2]) for row in expected(name) if row[:2] == (text, length)) + 1
        if longest < head.settings.max_tokens and "xpress" not in name:
            continue
        tokens = PLAN["texts"][text]
        states = tuple(state[None] for state in target().states(tokens, proposer.aux_layer_ids)[1:])
        before = torch.tensor([[*tokens[length - 2 : length], *path]])
        with torch.inference_mode():
            at = torch.tensor([0]), torch.tensor([length - 1])
            blocks = run_blocks(head, torch.tensor([tokens]), states, *at)
            *_, got = forced_logits(head, blocks, before)
        assert worst({(text, length, path): got[0]}, {(text, length, path): logits}) < TOLERANCE
        num_compared += 1
    assert num_compared > 5


@pytest.mark.parametrize("name", [name for name in HEADS if "dspark" in name])
def test_confidences_are_the_exporters(name: str) -> None:
    """With a threshold that nothing is below."""
    proposer = load(name, is_fused=False, draft_confidence_threshold=1e-9)
    assert worst(drafted(proposer, confidences=True), expected(name, "confidence")) < TOLERANCE


WRONG = {
    "shifted layers": ("speculators/llama", {"aux_layer_ids": [3, 5, 6]}),
    "outputs for inputs": ("modelopt/eagle3", {"aux_layer_ids": [1, 3, 4]}),
    "a block's outputs for inputs": ("modelopt/dflash", {"aux_layer_ids": [1, 5]}),
    "the anchor as a guess": ("speculators/xpress", {"sample_from_anchor": True}),
    "the anchor as none": ("deepspec/dspark", {"sample_from_anchor": False}),
    "another norm": ("specforge/eagle3_normed_output", {"norm_output": True}),
}


@pytest.mark.parametrize("case", WRONG)
def test_another_reading_is_told_apart(case: str) -> None:
    """The inputs are such that each of the readings matters."""
    name, keys = WRONG[case]
    assert worst(drafted(load(name, is_fused=False, config=keys)), expected(name)) > 1000 * TOLERANCE


def test_there_are_heads_of_every_exporter_and_method() -> None:
    assert len(HEADS) >= 40
    assert {name.split("/")[0] for name in HEADS} == {
        "deepspec",
        "modelopt",
        "specforge",
        "speculators",
        "zlab",
    }
    assert {head["method"] for head in HEADS.values()} == {"dflash", "eagle3", "medusa", "mtp"}
    sizes = [file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()]
    assert sum(sizes) < 300_000
    assert max(sizes) < 20_000


def table_of_heads() -> list[list[str]]:
    """The rows of the table of published heads: family, ids, whether they draft, proof."""
    text = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8").split("## Published heads")[1]
    lines = [line for line in text.split("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


MOST_DOWNLOADED = (
    "nvidia/gpt-oss-120b-Eagle3-v3",
    "lmsys/EAGLE3-gpt-oss-120b-bf16",
    "incoai/GLM-5.3-Flash-DFlash2",
    "AngelSlim/Qwen3-1.7B_eagle3",
    "zhuyksir/EAGLE3-gpt-oss-20b-bf16",
    "nvidia/gpt-oss-120b-Eagle3-short-context",
    "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
    "z-lab/Qwen3-8B-DFlash-b16",
    "RedHatAI/Qwen3-8B-speculator.peagle",
    "ibm-ai-platform/*",
)
"""First by downloads of 30 days in October 2026 as far as they were counted; then one of each kind that is left."""


def test_the_table_of_heads_names_all_of_them() -> None:
    rows = table_of_heads()
    assert len(rows) >= 45
    assert set(re.findall(r"`((?:deepspec|modelopt|specforge|speculators|zlab)/\w+)`", str(rows))) == set(
        HEADS
    )
    for family, ids, drafts, proof in rows:
        assert proof == "names" or proof == "reading" or "exporter" in proof, (family, ids)
        assert proof != "reading" or not drafts.startswith("yes"), (family, ids)
    for head in MOST_DOWNLOADED:
        [proof] = [proof for _, ids, _, proof in rows if f"`{head}`" in ids]
        assert proof != "reading"
