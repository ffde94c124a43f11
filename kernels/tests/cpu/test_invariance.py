"""A row has the same bits in any pass: beside other requests, as one of many rows, in a tree, behind a prefix."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from speccheck.recorder import RecordingBackend, use_backends
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    Glm4Config,
    LlamaConfig,
    MistralConfig,
    Olmo3Config,
    Qwen2Config,
    Qwen3Config,
    Starcoder2Config,
)

from specdec import ConfigError, ModelError, registry
from specdec.engine_options import EngineOptions
from specdec_kernels.cpu.pass_chunks import in_chunks
from specdec_kernels.cuda.attention import PagedAttention
from specdec_kernels.layers.backend import LayersBackend
from specdec_runtime.interfaces import PackedBatch, Segment
from specdec_runtime.runner import ModuleRunner

CPU = torch.device("cpu")
SIZES = {
    "vocab_size": 61,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "odd sizes": LlamaConfig(
        **SIZES | {"hidden_size": 36, "head_dim": 10, "intermediate_size": 45}, attention_bias=True
    ),
    "wide heads": LlamaConfig(**SIZES | {"head_dim": 72, "num_attention_heads": 2, "num_key_value_heads": 1}),
    "qwen2": Qwen2Config(**{k: v for k, v in SIZES.items() if k != "head_dim"}),
    "qwen3": Qwen3Config(**SIZES),
    "window": MistralConfig(**SIZES, sliding_window=21),
    "gemma2": Gemma2Config(
        **SIZES, sliding_window=21, attn_logit_softcapping=2.0, final_logit_softcapping=5.0
    ),
    "gemma3": Gemma3TextConfig(
        **SIZES, sliding_window=21, layer_types=["sliding_attention", "full_attention"]
    ),
    "glm4": Glm4Config(**SIZES, pad_token_id=0),
    "olmo3": Olmo3Config(
        **{k: v for k, v in SIZES.items() if k != "head_dim"},
        pad_token_id=0,
        eos_token_id=1,
        sliding_window=21,
        layer_types=["sliding_attention", "full_attention"],
    ),
}
TEXT = [(i * i + 3 * i) % 61 for i in range(300)]
"""The request under test."""


def make_runner(name: str, dtype: torch.dtype, *, is_invariant: bool = True) -> ModuleRunner:
    """Make a runner with the backends of the test."""
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(CONFIGS[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    is_kernels = "cpu" not in [backend.name for backend in registry.backends()]
    attention = partial(PagedAttention, is_invariant=True) if is_kernels and is_invariant else None
    runner = ModuleRunner(
        model.to(dtype).eval(), CPU, 512, make_attention=attention, is_invariant=is_invariant
    )
    runner.allocate(2048)
    for tensor in (*runner.cache.keys.values(), *runner.cache.values.values()):
        tensor.fill_(float("nan"))
    return runner


def chain(ids: list[int], start: int, end: int, first_slot: int):
    """Tokens `start` to `end - 1` of a request."""
    return ids[start:end], range(start, end), Segment(0, end - start, first_slot, start)


def tree(ids: list[int], start: int, first_slot: int, parents: list[int]):
    """Token `start` of a request and a tree behind it whose first path, taken at every other node, is its text."""
    mask = torch.eye(len(parents) + 1, dtype=torch.bool)
    mask[:, 0] = True
    for node, parent in enumerate(parents):
        mask[node + 1] |= mask[parent + 1]
    depths = mask.sum(1) - 1
    tokens = [ids[start + depth] if node in PATH else 60 - node for node, depth in enumerate(depths.tolist())]
    segment = Segment(0, len(tokens), first_slot, start, mask, depths)
    return tokens, [start + depth for depth in depths.tolist()], segment


PARENTS = [-1, -1, 0, 1, 1, 2, 4, 4, 6, 7]
PATH = (0, 2, 5, 7, 9)
"""Rows of the tree that are the text: each behind siblings that are not."""


def run(runner: ModuleRunner, *pieces) -> list[torch.Tensor]:
    """Run requests in one pass; returns the logits of each."""
    tokens, places, segments, slots, row = [], [], [], [], 0
    for ids, positions, segment in pieces:
        segment.row = row
        row += segment.num_rows
        tokens += ids
        places += positions
        segments.append(segment)
        slots += range(segment.first_slot + segment.num_cached, segment.first_slot + segment.kv_len)
    batch = PackedBatch(
        torch.tensor(tokens),
        torch.tensor(places),
        segments,
        torch.tensor(slots) if len(pieces) > 1 else None,
        None,
    )
    return list(runner.forward(batch).logits.split([segment.num_rows for segment in segments]))


def check(runner: ModuleRunner, length: int, num_others: int = 50) -> None:
    """Every way to come to the logits of `TEXT[:length]` gives the same bits."""
    other, more = [(7 * i) % 61 for i in range(200)], [(5 * i + 1) % 61 for i in range(90)]
    expected = run(runner, chain(TEXT, 0, length, 0))[0]
    assert not expected.isnan().any()
    # Token by token from the middle on, alone and beside others.
    half = max(length // 2, length - 20)
    for place in range(half, length):
        company = [chain(other, 0, 1 + place % 7, 1024)] if place % 2 else []
        got = run(runner, *company, chain(TEXT, place, place + 1, 0))[-1]
        assert torch.equal(got[0], expected[place]), place
    # In chunks, somewhere else, beside a long prompt and a short one.
    done, spare = 0, min(20, length)
    for size in (1, 4, 33, 2, length):
        end = min(length, done + size)
        got = run(
            runner,
            chain(other, 0, num_others + size % 100, 1024),
            chain(TEXT, done, end, 400),
            chain(more, 0, 3, 800),
        )[1]
        assert torch.equal(got, expected[done:end])
        done = end
        if done == length:
            break
    # As one path of a tree, alone and beside another tree.
    start = length - 5
    run(runner, chain(more, 0, spare, 800))
    for company in ([], [tree(more, spare, 800, PARENTS)]):
        got = run(runner, *company, tree(TEXT, start, 0, PARENTS))[-1]
        assert torch.equal(got[list(PATH)], expected[start : start + len(PATH)])
    # Behind a prefix that was copied.
    runner.cache.copy(400, 1536, half)
    got = run(runner, chain(TEXT, half, length, 1536))[0]
    assert torch.equal(got, expected[half:])


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_has_the_same_bits_in_any_pass(name, dtype) -> None:
    check(make_runner(name, dtype), 47)


def test_long_requests_too() -> None:
    check(make_runner("window", torch.bfloat16), 300)


def test_hidden_states_are_those_of_one_pass() -> None:
    runner = make_runner("llama", torch.float32)
    runner.capture_hidden((1, 0, 1))
    ids = torch.tensor(TEXT[:300])
    whole = PackedBatch(ids, torch.arange(300), [Segment(0, 300, 0, 0)], None, torch.tensor([299, 3, 97]))
    assert len(in_chunks(whole)) > 1
    output = runner.forward(whole)
    parts = []
    for start in range(0, 300, 20):
        rows = slice(start, start + 20)
        segment = Segment(0, 20, 0, start)
        parts.append(runner.forward(PackedBatch(ids[rows], torch.arange(300)[rows], [segment], None, None)))
    assert torch.equal(output.hidden_states, torch.cat([part.hidden_states for part in parts]))
    for k, inputs in enumerate(output.aux_hidden_states):
        assert torch.equal(inputs, torch.cat([part.aux_hidden_states[k] for part in parts]))
    assert torch.equal(output.logits, torch.cat([part.logits for part in parts])[[299, 3, 97]])


def test_without_it_rows_do_depend_on_their_company() -> None:
    """What the other tests would let pass is a runner that ignores the option; larger models take torch's long passes."""
    runner = make_runner("llama", torch.float32, is_invariant=False)
    runner.forms[0][0]._supports_chunks = False
    with pytest.raises(AssertionError):
        check(runner, 47)


@pytest.mark.interpreter
@pytest.mark.parametrize(("name", "dtype"), [("llama", torch.float32), ("window", torch.float32)])
def test_the_kernels_keep_the_bits_of_a_row(name, dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    use_backends(monkeypatch, RecordingBackend(None), LayersBackend())
    check(make_runner(name, dtype), 7, num_others=2)


def test_models_without_compiled_layers_are_refused() -> None:
    starcoder = AutoModelForCausalLM.from_config(Starcoder2Config(**SIZES))
    with pytest.raises(
        ModelError,
        match=r"deterministic=True needs a form.*\(cpu: its layers attend by .* and feed forward by c_fc, c_proj, act;",
    ):
        ModuleRunner(starcoder, CPU, 64, is_invariant=True)
    llama = AutoModelForCausalLM.from_config(CONFIGS["llama"]).double()
    with pytest.raises(ModelError, match="in float32 or bfloat16; this model is in float64"):
        ModuleRunner(llama, CPU, 64, is_invariant=True)
    scaled = AutoModelForCausalLM.from_config(CONFIGS["llama"])
    scaled.register_forward_hook(lambda *args: setattr(args[-1], "logits", 2 * args[-1].logits))
    with pytest.raises(ModelError, match="cpu: its outputs are"):
        ModuleRunner(scaled, CPU, 64, is_invariant=True)


def test_it_excludes_the_models_own_forward() -> None:
    with pytest.raises(ConfigError, match="deterministic=True needs fused layers"):
        EngineOptions(model="zoo", deterministic=True, enforce_eager=True)
