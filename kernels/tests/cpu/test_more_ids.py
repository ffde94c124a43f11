"""A chain that may name further ids of each row draws as a chain over the whole vocabulary does that leaves out all others."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, GraniteConfig, LlamaConfig

from specdec.interfaces.draws import NoiseKeys
from specdec_kernels.cpu.rows.noise import multinomial
from specdec_runtime.interfaces import ChainRules, ChainWork, NewRows, PackedBatch, Segment
from specdec_runtime.runner import ModuleRunner

VOCAB, STEPS = 61, 5
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 40,
    "intermediate_size": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "soft cap": Gemma2Config(**SIZES, final_logit_softcapping=2.0),
    "scaled": GraniteConfig(
        **{name: size for name, size in SIZES.items() if name != "head_dim"}, logits_scaling=0.5
    ),
}
SLOTS, CACHED, COUNTS = [0, 64, 128], [9, 4, 12], [1, 2, 1]
NEW = np.array([7, 8, 20, 31])
TEMPERATURES = [0.0, 0.7, 1.3]


def runner_of(model) -> ModuleRunner:
    runner = ModuleRunner(model, torch.device("cpu"), 128)
    assert runner.chain.max_new_rows > 0
    runner.allocate(256)
    for row, (slot, length) in enumerate(zip(SLOTS, CACHED, strict=True)):
        last_logits(runner, [(i * 3 + row) % VOCAB for i in range(length)], slot, 0)
    return runner


def last_logits(runner: ModuleRunner, ids: list[int], first_slot: int, num_cached: int) -> torch.Tensor:
    positions = torch.arange(num_cached, num_cached + len(ids))
    segments = [Segment(0, len(ids), first_slot, num_cached)]
    return runner.forward(PackedBatch(torch.tensor(ids), positions, segments, None, None)).logits[-1].float()


def with_short_head(model, ids: np.ndarray):
    short = copy.deepcopy(model)
    head = torch.nn.Linear(SIZES["hidden_size"], len(ids), bias=False)
    head.weight = torch.nn.Parameter(model.get_output_embeddings().weight.detach()[ids].clone())
    short.lm_head = head
    return short.eval()


@pytest.mark.parametrize("named", [np.arange(9), np.array([0, 3, 4, 17, 30, 31, 44, 50])], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", CONFIGS)
def test_each_row_draws_from_the_named_ids_and_its_own(kind, dtype, named) -> None:
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(CONFIGS[kind])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model = model.to(dtype).eval()
    short, whole = runner_of(with_short_head(model, named)), runner_of(model)
    own = [np.array([29, 55, 60]), np.empty(0, np.int64), np.setdiff1d(np.arange(40, 61), named)]
    keys = NoiseKeys(np.array([11, -5, 2**62]), np.arange(3), np.array([10, 6, 13]))
    target_ids = None if len(named) == 9 else named
    rules = ChainRules(len(named), target_ids, threshold=1e-9)
    work = ChainWork(SLOTS, CACHED, STEPS, TEMPERATURES, keys, rules, more_ids=own)
    got = short.draft_after(NewRows(NEW, COUNTS), work)
    drawn, expected = [], []
    for row, tokens in enumerate(np.split(NEW, np.cumsum(COUNTS)[:-1])):
        allowed = np.concatenate((named, own[row]))
        running, length, chosen = tokens.tolist(), CACHED[row], []
        for step in range(STEPS):
            logits = last_logits(whole, running, SLOTS[row], length)
            length += len(running)
            probs = np.zeros(VOCAB, np.float32)
            temperature = TEMPERATURES[row] or 1.0
            probs[allowed] = torch.softmax(logits[allowed] / temperature, -1).numpy()
            if TEMPERATURES[row]:
                token = multinomial(probs, int(keys.seeds[row]), int(keys.positions[row]) + step, row, 0)
            else:
                token = int(probs.argmax())
            running = [token]
            chosen.append(token)
        expected.append(chosen)
        drawn += [token for token in chosen if token in own[row]]
    assert got.token_ids.tolist() == expected
    assert drawn, "some of the further ids are chosen"
    without = short.draft_after(
        NewRows(NEW, COUNTS), ChainWork(SLOTS, CACHED, STEPS, TEMPERATURES, keys, rules)
    )
    assert set(without.token_ids.flatten().tolist()) <= set(named.tolist())
