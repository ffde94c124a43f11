"""Every family's layers compute what the formulas say, over several steps of which only some drafts are accepted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mtp_check.plain import PlainMtp
from mtp_check.targets import NUM_LAYERS, VOCAB_SIZE, MadeTarget

from specdec.engine_options import EngineOptions
from specdec_plugin_mtp import MtpConfig, MtpProposer
from specdec_runtime.loading.target import load_target
from specdec_testing.support.feed import Ask, Feed
from specdec_testing.support.target import CheckTarget

RUNNING = ["llama", "deepseek_v3", "glm4_moe", "glm4_moe_lite", "mimo", "ernie", "qwen3_next", "qwen3_5"]
TOLERANCE = 1e-5


def load(made: MadeTarget, k: int, **keys: Any) -> tuple[MtpProposer, Feed]:
    loaded = load_target(EngineOptions(model=str(made.folder), dtype="float32", skip_tokenizer_init=True))
    target = CheckTarget(loaded)
    config = MtpConfig(num_speculative_tokens=k, draft_sample_method="probabilistic", **keys)
    proposer = MtpProposer(config, target.handle.info)
    proposer.load(target.handle)
    return proposer, Feed(proposer, target)


def largest_error(plain: PlainMtp, feed: Feed, k: int, standing: list[int]) -> float:
    """Accept as many drafted tokens as the list says, step by step; return the largest difference of any distribution."""
    generator = torch.Generator().manual_seed(3)
    texts = [torch.randint(VOCAB_SIZE, (n,), generator=generator).tolist() for n in (7, 2)]
    for name, text in enumerate(texts):
        feed.add(str(name), text, len(text), seed=name)
    counts = [len(text) for text in texts]
    worst = 0.0
    for step, stood in enumerate(standing):
        rows = feed.call({str(i): Ask(count, cap=k) for i, count in enumerate(counts)})
        for i, text in enumerate(texts):
            row = rows[str(i)]
            assert len(row.tokens) == k or row.tokens[-1] in feed.proposer.target_info.eos_token_ids
            assert row.probs is not None
            wanted = torch.stack(
                [logits.softmax(-1) for logits in plain.drafted_logits(text, list(row.tokens))]
            )
            worst = max(worst, (row.probs[: len(wanted)] - wanted).abs().max().item())
            accepted = max(0, stood if i == 0 else k - stood)
            new = [*row.tokens[:accepted], (11 * step + 5 * i) % VOCAB_SIZE]
            text += new
            feed.requests[str(i)].text += new
            counts[i] = len(new)
    return worst


@pytest.mark.parametrize("kind", RUNNING)
@pytest.mark.sampled(3, slow=3)
def test_one_layer(made, kind):
    target = made(kind)
    proposer, feed = load(target, 3)
    assert proposer._head.num_stages == 1
    assert (len(proposer._runner.forms[0]) > 1) == (kind in ("llama", "mimo"))
    assert largest_error(PlainMtp(target), feed, 3, [0, 1, 3, 2, 0, 3]) < TOLERANCE


@pytest.mark.parametrize("kind", ["llama", "mimo"])
def test_not_compiled(made, kind):
    target = made(kind)
    proposer, feed = load(target, 3)
    proposer._runner.forms = [[proposer._runner.forms[0][-1]]]
    assert largest_error(PlainMtp(target), feed, 3, [0, 1, 3, 2]) < TOLERANCE


@pytest.mark.parametrize("kind", ["llama", "deepseek_v3"])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_two_layers(made, kind, k):
    target = made(kind, 2)
    proposer, feed = load(target, k)
    assert proposer._head.num_stages == 2
    assert all((len(forms) > 1) == (kind == "llama") for forms in proposer._runner.forms)
    assert largest_error(PlainMtp(target), feed, k, [0, 1, k, 2, 0]) < TOLERANCE


def test_layers_are_those_behind_the_targets(made):
    target = made("glm4_moe", 2)
    proposer, _ = load(target, 2)
    layers = [proposer._head.stage(i).layers[0] for i in range(2)]
    assert [layer.self_attn.layer_idx for layer in layers] == [0, 1]
    for index, layer in enumerate(layers):
        name = f"model.layers.{NUM_LAYERS + index}.mlp.experts.1."
        gate, up = (target.tensors[f"{name}{part}_proj.weight"] for part in ("gate", "up"))
        assert torch.equal(layer.mlp.experts.gate_up_proj[1], torch.cat((gate, up)))
        assert layer.mlp.gate.e_score_correction_bias.abs().sum() > 0
