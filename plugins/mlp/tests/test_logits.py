"""Logits are those of the published formulas, in plain torch, on states that come from `transformers`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import specdec_zoo
from specdec import LLM, SamplingParams
from specdec_plugin_mlp import load_mlp_speculator
from specdec_runtime.drafting import HeadCheckpoint


def reference(folder: Path, state: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """Return the logits `[V]` after some tokens, the first of which the state `[H]` chose; one head for each."""
    config = json.loads((folder / "config.json").read_text())
    weights = {
        name.removeprefix("speculator."): w for name, w in load_file(folder / "model.safetensors").items()
    }
    n, width = config["n_predict"], config["inner_dim"] or config["emb_dim"]
    state_weight = 0.5 ** (0.5 / n)
    emb_weight = math.sqrt((1 - state_weight**2) * (width / 2))
    s = state
    if config["scale_input"]:
        s = s / (s.pow(2).mean() + 1e-6).sqrt() / 2**0.5
    for i, token in enumerate(tokens):
        j = 0 if config["tie_weights"] else i
        s = weights[f"proj.{min(i, 1) if config['tie_weights'] else i}.weight"] @ s
        s = s + emb_weight / state_weight * weights[f"emb.{j}.weight"][token]
        s = s / (s.pow(2).mean() + 1e-6).sqrt() * weights[f"ln.{j}.weight"] + weights[f"ln.{j}.bias"]
        s = 0.5 * s * (1 + torch.erf(s / 2**0.5))
        logits = weights[f"head.{j}.weight"] @ s
    return logits


SHAPES = {
    "plain": {},
    "tied": {"tie_weights": True},
    "scaled": {"scale_input": True},
    "tied and scaled": {"tie_weights": True, "scale_input": True, "n_predict": 4},
    "as wide as the target": {"inner_dim": 0, "emb_dim": 64},
    "one head": {"n_predict": 1},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_head_follows_the_formulas(make_heads, shape):
    folder = make_heads(**SHAPES[shape])
    heads = load_mlp_speculator(HeadCheckpoint(str(folder)))
    states = 2 * torch.randn(5, heads.layout.emb_dim)
    tokens = torch.randint(0, 4096, (5, heads.num_heads))
    logits = heads(states, tokens)
    assert logits.shape == (5, heads.num_heads, 4096)
    for row in range(5):
        for index in range(heads.num_heads):
            wanted = reference(folder, states[row], tokens[row, : index + 1].tolist())
            torch.testing.assert_close(logits[row, index], wanted, atol=1e-5, rtol=0)
    many = heads(states.repeat(80, 1), tokens.repeat(80, 1))  # enough for the other way to the activation
    torch.testing.assert_close(many[-5:], logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "keys", [{}, {"tree_top_k": 2, "num_speculative_tokens": 6}, {"draft_sample_method": "greedy"}]
)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.sampled(2, slow=2)
def test_in_the_engine_over_steps_with_partial_acceptances(learnt, texts, keys, temperature):
    folder = learnt[0]
    config = {"method": "mlp_speculator", "model": str(folder), "on_proposer_error": "raise", **keys}
    llm = LLM(model="zoo", dtype="float32", speculative_config=config, strict_drafts=True)
    chooser = llm._built.engine.proposer._chooser
    choose, seen, accepted = chooser.choose, [], set()

    def watch(logits, places, batch):
        for row, place in zip(logits, places, strict=True):
            seen.append((batch.token_ids(place.row).tolist(), list(place.path), row.clone()))
            if batch.last_num_drafted[place.row]:
                accepted.add(batch.last_num_accepted[place.row])
        return choose(logits, places, batch)

    chooser.choose = watch
    params = [
        SamplingParams(temperature=temperature, seed=i, max_tokens=24, ignore_eos=True) for i in range(6)
    ]
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in texts.prompts], params)
    assert accepted >= {0, 3}
    assert accepted & {1, 2}
    model = AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32).eval()
    whole = [[*output.prompt_token_ids, *output.outputs[0].token_ids] for output in outputs]
    with torch.no_grad():
        states = [model.model(torch.tensor([ids])).last_hidden_state[0] for ids in whole]
    assert len(seen) > 60
    for text, path, logits in seen:
        (state,) = [s for s, ids in zip(states, whole, strict=True) if ids[: len(text)] == text]
        wanted = reference(folder, state[len(text) - 2], [text[-1], *path])
        # Logits reach 12; the states come from another implementation of the target, and differ themselves in the last bits.
        torch.testing.assert_close(logits, wanted, atol=5e-5, rtol=0)
