"""All layers in one compiled call, and whole chains, against the model's own forward."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from specdec.interfaces.draws import NoiseKeys
from specdec.logits.pipeline import apply_temperature_and_truncation
from specdec.sampling_params import SamplingParams
from specdec_kernels.cpu.rows.noise import multinomial
from specdec_runtime.interfaces import ChainRules, ChainWork, ForwardOutput, NewRows, PackedBatch, Segment
from specdec_runtime.runner import ModuleRunner, in_inference_mode

SIZES = {
    "vocab_size": 61,
    "hidden_size": 36,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "max_position_embeddings": 128,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "qwen2": Qwen2Config(**{k: v for k, v in SIZES.items() if k != "head_dim"} | {"hidden_size": 40}),
    "qwen3": Qwen3Config(**SIZES),
    "window": MistralConfig(**SIZES, sliding_window=9),
}


def make_runner(name: str, dtype: torch.dtype = torch.float32) -> ModuleRunner:
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(CONFIGS[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    runner = ModuleRunner(model.to(dtype).eval(), torch.device("cpu"), 128)
    runner.allocate(256)
    for tensor in (*runner.cache.keys.values(), *runner.cache.values.values()):
        tensor.fill_(float("nan"))
    return runner


def own_forward(runner):
    """The model's own forward, without the forms of backends."""
    return in_inference_mode(partial(runner.forms[0][-1].forward, features=None))


def run(runner, forward, ids, first_slot, num_cached, tree_mask=None, depths=None):
    places = torch.arange(num_cached, num_cached + len(ids))
    positions = places if depths is None else num_cached + depths
    segment = Segment(0, len(ids), first_slot, num_cached, tree_mask, depths)
    return forward(PackedBatch(torch.tensor(ids), positions, [segment], None, None))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("num_rows", [1, 2, 3, 5, 8, 13])
@pytest.mark.sampled(10, slow=10)
def test_compiled_layers_equal_the_models_own_forward(name, num_rows):
    fast, own = make_runner(name), make_runner(name)
    assert fast.chain is not None
    asked = (0, 2, SIZES["num_hidden_layers"])
    fast.capture_hidden(asked)
    own.capture_hidden(asked)
    prompt, ids = list(range(3, 20)), [(7 * i) % 61 for i in range(num_rows)]
    run(fast, fast.forward, prompt, 16, 0)
    run(own, own_forward(own), prompt, 16, 0)
    got = run(fast, fast.forward, ids, 16, 17)
    expected = run(own, own_forward(own), ids, 16, 17)
    torch.testing.assert_close(got.logits, expected.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.hidden_states, expected.hidden_states, rtol=1e-4, atol=1e-5)
    for a, b in zip(got.aux_hidden_states, expected.aux_hidden_states, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [[2], [0, 3], [3, 0, 2, 1], [1, 1]])
def test_logits_are_those_of_the_rows_asked_for_in_their_order(rows):
    runner = make_runner("llama")
    ids, positions = torch.tensor([5, 9, 2, 7]), torch.arange(4)
    every = runner.forward(PackedBatch(ids, positions, [Segment(0, 4, 0, 0)], None, None)).logits
    some = runner.forward(PackedBatch(ids, positions, [Segment(0, 4, 0, 0)], None, torch.tensor(rows))).logits
    torch.testing.assert_close(some, every[rows], rtol=1e-5, atol=1e-6)


def test_compiled_layers_equal_the_forward_for_a_tree():
    fast, own = make_runner("llama"), make_runner("llama")
    parents = [-1, -1, 0, 0, 1]
    mask = torch.eye(6, dtype=torch.bool)
    mask[:, 0] = True
    depths = torch.zeros(6, dtype=torch.int64)
    for node, parent in enumerate(parents):
        mask[node + 1] |= mask[parent + 1]
        depths[node + 1] = depths[parent + 1] + 1
    ids = [4, 9, 8, 7, 6, 5]
    for runner, forward in ((fast, fast.forward), (own, own_forward(own))):
        run(runner, forward, list(range(11)), 0, 0)
    got = run(fast, fast.forward, ids, 0, 11, mask, depths)
    expected = run(own, own_forward(own), ids, 0, 11, mask, depths)
    torch.testing.assert_close(got.logits, expected.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_rows", [1, 3])
def test_a_chain_is_what_a_pass_and_a_choice_per_token_give(dtype, num_rows):
    compiled, plain = make_runner("llama", dtype), make_runner("llama", dtype)
    slots, lengths, num_steps, num_ids = [0, 64, 128][:num_rows], [9, 4, 12][:num_rows], 5, 50
    temperatures = [0.0, 0.7, 1.3][-num_rows:]
    keys = NoiseKeys(np.array([11, -5, 2**62][:num_rows]), np.arange(num_rows), np.array(lengths, np.int64))
    logits = []
    for runner in (compiled, plain):
        rows = [
            run(runner, runner.forward, [(i * 3 + row) % 61 for i in range(length)], slot, 0).logits[-1]
            for row, (slot, length) in enumerate(zip(slots, lengths, strict=True))
        ]
        logits.append(torch.stack(rows))
    got = compiled.draft_chain(
        ForwardOutput(logits[0].clone()),
        ChainWork(slots, lengths, num_steps, temperatures, keys, ChainRules(num_ids)),
    ).token_ids
    expected = np.empty((num_rows, num_steps), np.int64)
    for row in range(num_rows):
        current = logits[1][row]
        for step in range(num_steps):
            scores = current[:num_ids].float()
            if temperatures[row] == 0:
                token = int(scores.argmax())
            else:
                probs = torch.softmax(scores / temperatures[row], -1).numpy()
                token = multinomial(
                    probs, int(keys.seeds[row]), int(keys.positions[row]) + step, int(keys.samples[row]), 0
                )
            expected[row, step] = token
            current = run(plain, plain.forward, [token], slots[row], lengths[row] + step).logits[0]
    assert got.tolist() == expected.tolist()
    assert got.max() < num_ids


CUTS = [SamplingParams(top_k=4), SamplingParams(top_p=0.5), SamplingParams(min_p=0.3)]


@pytest.mark.parametrize("target_ids", [None, np.arange(50) * 2 + 1])
def test_a_chain_cuts_as_the_target_does(target_ids):
    runner = make_runner("llama", torch.float32)
    rules, num_cut = ChainRules(50, target_ids), 0
    names = np.arange(50) if target_ids is None else target_ids
    cuts = [(params.top_k, params.top_p, params.min_p) for params in CUTS]
    temperatures = [0.7, 0.9, 1.3]
    for seed in range(60):
        logits = 2.0 * torch.randn(3, 61, generator=torch.Generator().manual_seed(seed))
        keys = NoiseKeys(np.array([seed, -5, 2**62 + seed]), np.arange(3), np.array([4, 9, 1]))
        scaled = logits[:, :50] / torch.tensor(temperatures)[:, None]
        kept = apply_temperature_and_truncation(scaled, CUTS, [1, 1, 1])
        drawn = []
        for scores in (kept, scaled):
            wide = np.zeros((3, int(names[-1]) + 1), np.float32)
            wide[:, names] = torch.softmax(scores, -1).numpy()
            drawn.append(
                [multinomial(wide[i], int(keys.seeds[i]), int(keys.positions[i]), i, 0) for i in range(3)]
            )
        work = ChainWork([0, 64, 128], [4, 9, 1], 1, temperatures, keys, rules, cuts)
        assert runner.draft_chain(ForwardOutput(logits), work).token_ids[:, 0].tolist() == drawn[0]
        num_cut += sum(a != b for a, b in zip(*drawn, strict=True))
    assert num_cut > 20


def test_a_chain_ends_where_every_row_is_unsure():
    runner = make_runner("llama", torch.float32)
    slots, lengths, temperatures = [0, 64], [9, 4], [0.0, 0.7]
    keys = NoiseKeys(np.array([11, -5]), np.arange(2), np.array(lengths, np.int64))

    def draft(threshold):
        rows = [
            run(runner, runner.forward, [(i * 3 + row) % 61 for i in range(length)], slot, 0).logits[-1]
            for row, (slot, length) in enumerate(zip(slots, lengths, strict=True))
        ]
        rules = ChainRules(50, threshold=threshold)
        return runner.draft_chain(
            ForwardOutput(torch.stack(rows)), ChainWork(slots, lengths, 6, temperatures, keys, rules)
        )

    whole = draft(1e-9)
    assert whole.token_ids.shape == (2, 6)
    running_lowest = np.minimum.accumulate(whole.confidences.numpy(), 1).max(0)
    for count in range(1, 6):
        if running_lowest[count - 1] > running_lowest[count]:
            got = draft(float(running_lowest[count - 1] + running_lowest[count]) / 2)
            assert np.array_equal(got.token_ids, whole.token_ids[:, : count + 1])
            assert np.array_equal(got.confidences, whole.confidences[:, : count + 1])
    assert draft(1.0).token_ids.tolist() == whole.token_ids[:, :1].tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_drawn", [False, True])
def test_taking_in_and_drafting_in_one_call_is_what_two_calls_give(dtype, is_drawn):
    at_once, in_turn = make_runner("llama", dtype), make_runner("llama", dtype)
    slots, cached, counts = [0, 128, 64], [9, 4, 12], [3, 1, 2]
    keys = NoiseKeys(np.array([11, -5, 2**62]), np.arange(3), np.array([12, 5, 14], np.int64))
    for runner in (at_once, in_turn):
        for row, (slot, length) in enumerate(zip(slots, cached, strict=True)):
            run(runner, runner.forward, [(i * 3 + row) % 61 for i in range(length)], slot, 0)
    tokens = np.array([7, 8, 9, 20, 31, 32])
    rules = ChainRules(50, is_drawn=is_drawn, threshold=1e-9)
    settings = (4, [0.0, 0.7, 1.3], keys, rules)
    got = at_once.draft_after(NewRows(tokens, counts), ChainWork(slots, cached, *settings))
    logits = torch.stack(
        [
            run(in_turn, in_turn.forward, part.tolist(), slot, length).logits[-1]
            for part, slot, length in zip(np.split(tokens, [3, 4]), slots, cached, strict=True)
        ]
    )
    torch.testing.assert_close(got.logits, logits, rtol=1e-5, atol=1e-5)
    lengths = [length + count for length, count in zip(cached, counts, strict=True)]
    given = logits.clone()
    expected = in_turn.draft_chain(ForwardOutput(given), ChainWork(slots, lengths, *settings))
    assert torch.equal(given, logits)  # whose they are keeps them
    assert got.token_ids.tolist() == expected.token_ids.tolist()
    np.testing.assert_allclose(got.confidences, expected.confidences, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got.draft_probs, expected.draft_probs, rtol=1e-4, atol=1e-6)
    for layer in range(SIZES["num_hidden_layers"]):
        for slot, length in zip(slots, lengths, strict=True):
            rows = slice(slot, slot + length + 3)
            torch.testing.assert_close(
                at_once.cache.keys[layer][rows], in_turn.cache.keys[layer][rows], rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize("temperature", [1e-45, 1e-36, 1.0])
def test_a_chain_stays_inside_the_vocabulary_whatever_the_logits(temperature):
    runner = make_runner("llama")
    keys = NoiseKeys(np.array([3]), np.array([0]), np.array([5]))
    for logits in (torch.full((1, 61), float("nan")), torch.randn(1, 61)):
        best = 0 if logits.isnan().any() else int(logits[0, :50].argmax())
        got = runner.draft_chain(
            ForwardOutput(logits.clone()), ChainWork([0], [0], 3, [temperature], keys, ChainRules(50))
        ).token_ids
        assert ((got >= 0) & (got < 50)).all()
        if temperature < 1:
            assert got[0, 0] == best


@pytest.mark.parametrize("temperature", [1e-300, 1e-45, 1e-36, 1e-31, 0.7])
def test_the_law_of_a_drawn_chain_is_the_one_its_tokens_came_from(temperature):
    runner = make_runner("llama")
    keys = NoiseKeys(np.array([3]), np.array([0]), np.array([5]))
    logits = torch.randn(1, 61, generator=torch.Generator().manual_seed(4))
    chains = runner.draft_chain(
        ForwardOutput(logits.clone()),
        ChainWork([0], [0], 3, [temperature], keys, ChainRules(50, is_drawn=True)),
    )
    first = chains.draft_probs[0, 0]
    if temperature < 0.5:
        assert first.tolist() == [float(i == int(logits[0, :50].argmax())) for i in range(50)]
        assert int(chains.token_ids[0, 0]) == int(first.argmax())
    else:
        torch.testing.assert_close(
            first, torch.softmax(logits[0, :50] / temperature, -1), rtol=1e-5, atol=1e-7
        )
    torch.testing.assert_close(chains.draft_probs.sum(-1), torch.ones(1, 3))


@pytest.mark.parametrize(("path", "form"), [("one call", 0), ("torch", 1), ("own forward", 2)])
@pytest.mark.parametrize("num_rows", [2, 40])
def test_the_number_of_layers_stands_for_what_the_last_one_returns(num_rows, path, form):
    runner = make_runner("llama")
    runner.capture_hidden((SIZES["num_hidden_layers"], 1))
    forward = partial(runner.forms[0][form].forward, features=None)
    with torch.inference_mode():
        output = run(runner, forward, [(7 * i) % 61 for i in range(num_rows)], 0, 0)
    last, _ = output.aux_hidden_states
    torch.testing.assert_close(runner.module.model.norm(last), output.hidden_states, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_rows", [2, 40])
def test_a_layers_input_can_be_asked_for_twice(num_rows):
    runner = make_runner("llama")
    runner.capture_hidden((2, 0, 2))
    ids = [(7 * i) % 61 for i in range(num_rows)]
    first, second, third = run(runner, runner.forward, ids, 0, 0).aux_hidden_states
    _, expected, _ = run(runner, own_forward(runner), ids, 0, 0).aux_hidden_states
    torch.testing.assert_close(second, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(first, third)
    assert not torch.allclose(first, second)


def test_a_context_longer_than_the_first_table_is_probed_and_served() -> None:
    """The probe reads the last positions of the context, where no request of the pass has rows."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    runner = ModuleRunner(model, torch.device("cpu"), 4096)
    assert len(runner.forms[0]) == 3  # compiled loops, layers, the model's own
