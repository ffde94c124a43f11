"""Heads of Qwen3-Next and Qwen3.5 on their own: two layers, bfloat16, and stacked experts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mtp_check.plain import PlainMtp, Rows
from mtp_check.targets import HIDDEN, VOCAB_SIZE, MadeTarget
from safetensors.torch import save_file
from torch import nn

from specdec_plugin_mtp import MtpHead
from specdec_plugin_mtp.loading import load_mtp
from specdec_plugin_mtp.tensors import MtpTensors
from specdec_runtime.drafting import HeadCheckpoint
from specdec_runtime.interfaces import PackedBatch, Segment
from specdec_runtime.runner import ModuleRunner

KINDS = ["qwen3_next", "qwen3_5"]


def target_of(made: MadeTarget, dtype: torch.dtype = torch.float32) -> Any:
    """Return as much of a handle as loading needs."""
    embedding, head = nn.Embedding(VOCAB_SIZE, HIDDEN), nn.Linear(HIDDEN, VOCAB_SIZE, bias=False)
    embedding.weight.data = made.tensors["model.embed_tokens.weight"].to(dtype)
    head.weight.data = made.tensors["lm_head.weight"].to(dtype)
    info = SimpleNamespace(vocab_size=VOCAB_SIZE, hidden_size=HIDDEN, device=torch.device("cpu"), dtype=dtype)
    return SimpleNamespace(info=info, config=made.config, embed_tokens=embedding, lm_head=head)


def load(made: MadeTarget, dtype: torch.dtype = torch.float32) -> MtpHead:
    reader = HeadCheckpoint(str(made.folder))
    return load_mtp(target_of(made, dtype), MtpTensors(reader, "here"), reader.config)


def passed(runner: ModuleRunner, stage: int, rows: Rows, cached: int) -> Any:
    """Run the rows behind those in the cache."""
    batch = PackedBatch(
        token_ids=torch.tensor(rows.tokens[cached:]),
        positions=torch.tensor(rows.positions[cached:]),
        segments=[Segment(row=0, num_rows=len(rows.tokens) - cached, first_slot=0, num_cached=cached)],
        slots=None,
        logits_rows=None,
    )
    return runner.forward(batch, torch.stack(rows.features[cached:]), stage)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_right(made, kind):
    target = made(kind, 2)
    plain = PlainMtp(target, has_target=False)
    head = load(target)
    assert [head.stage(i).join for i in range(2)] == [head.stage(0).join] * 2
    runner = ModuleRunner(head, torch.device("cpu"), 64)
    runner.allocate(64)
    assert [len(forms) for forms in runner.forms] == [1, 1]
    generator = torch.Generator().manual_seed(1)
    for stage in range(2):
        tokens = torch.randint(VOCAB_SIZE, (9,), generator=generator).tolist()
        rows = Rows(tokens, list(torch.randn(9, HIDDEN, generator=generator)), list(range(9)))
        states = plain.run(stage, rows)
        logits = torch.stack([plain.logits(0, state) for state in states])
        begun = Rows(rows.tokens[:6], rows.features[:6], rows.positions[:6])
        for output, span in (
            (passed(runner, stage, begun, 0), slice(6)),
            (passed(runner, stage, rows, 6), slice(6, 9)),
        ):
            torch.testing.assert_close(output.hidden_states, states[span], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(output.logits, logits[span], rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_in_bfloat16(made, kind):
    head = load(made(kind), torch.bfloat16)
    runner = ModuleRunner(head, torch.device("cpu"), 64)
    runner.allocate(64)
    rows = Rows([3, 4, 5], list(torch.randn(3, HIDDEN).bfloat16()), [0, 1, 2])
    output = passed(runner, 0, rows, 0)
    assert output.logits.dtype == torch.bfloat16
    assert head.rotary.inv_freq.dtype == torch.float32
    expected = PlainMtp(made(kind), has_target=False).run(
        0, Rows(rows.tokens, [f.float() for f in rows.features], [0, 1, 2])
    )
    assert (output.hidden_states.float() - expected).norm() < 0.05 * expected.norm()


def test_experts_stored_in_one_stack(made, tmp_path):
    """As Qwen3.5's mixtures are published."""
    target = made("qwen3_next")
    head = load(target)
    tensors = {n: t for n, t in target.tensors.items() if not n.startswith("mtp.layers.0.mlp.experts.")}
    experts = head.stage(0).layers[0].mlp.experts
    for name in ("gate_up_proj", "down_proj"):
        tensors[f"mtp.layers.0.mlp.experts.{name}"] = getattr(experts, name).detach().clone()
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"num_nextn_predict_layers": 1}')
    other = load(MadeTarget(target.kind, tmp_path, target.config, target.tensors, target.blocks))
    assert torch.equal(other.stage(0).layers[0].mlp.experts.gate_up_proj, experts.gate_up_proj)
