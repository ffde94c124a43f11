"""Attention by the paged kernels against torch's, in Triton's interpreter: outputs, and whole generations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from speccheck.models import tiny
from speccheck.recorder import use_backends
from transformers import GPT2Config, LlamaConfig, PretrainedConfig

from specdec import LLM, ConfigError, SamplingParams
from specdec_kernels.cuda.attention import PagedAttention
from specdec_kernels.cuda.backend import TritonBackend
from specdec_kernels.triton.paged_attention import paged_attention
from specdec_runtime.backends.attention import _shapes, choose_attention, disagreement
from specdec_runtime.interfaces import (
    Attention,
    AttentionFactory,
    AttentionNeeds,
    KVCache,
    LayerShape,
    PackedBatch,
    Segment,
)
from specdec_runtime.runner import SdpaAttention

CPU = torch.device("cpu")
LAYER, HEADS, KV_HEADS, DIM, VALUE_DIM = 1, 4, 2, 8, 6
CONFIG = LlamaConfig(hidden_size=16 * HEADS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS)
TREE = [-1, 0, 0, -1, 2, 3]


@pytest.fixture
def kernels() -> Iterator[None]:
    """The kernels in the interpreter; what `torch.empty` returns is poisoned."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def segment(row: int, first_slot: int, cached: int, chunk: int, parents: list[int]) -> Segment:
    """A chain, or a chain with a tree behind it."""
    made = Segment(row, chunk + len(parents), first_slot, cached)
    if parents:
        mask = torch.tril(torch.ones((made.num_rows, made.num_rows), dtype=torch.bool))
        for node, parent in enumerate(parents):
            mask[chunk + node] = mask[chunk + parent if parent >= 0 else chunk - 1]
            mask[chunk + node, chunk + node] = True
        made.tree_mask, made.depths = mask, mask.sum(1) - 1
    return made


def scene(shapes: list[tuple[int, int, list[int]]], step: int) -> tuple[PackedBatch, KVCache]:
    """A batch of (cached rows, chunk rows, tree parents) whose first slots are multiples of `step`; unowned rows hold NaN."""
    torch.manual_seed(0)
    segments, row, slot = [], 0, step
    for cached, chunk, parents in shapes:
        segments.append(segment(row, slot, cached, chunk, parents))
        row = segments[-1].row + segments[-1].num_rows
        slot += -(-(segments[-1].kv_len + 1) // step) * step
    cache = KVCache(slot + step, CPU)
    cache.allocate(LAYER, LayerShape(KV_HEADS, DIM, VALUE_DIM, torch.float32))
    for tensor in (cache.keys[LAYER], cache.values[LAYER]):
        tensor.fill_(float("nan"))
        for s in segments:
            tensor[s.first_slot : s.first_slot + s.num_cached] = torch.randn(s.num_cached, *tensor.shape[1:])
    places = [torch.arange(s.first_slot + s.num_cached, s.first_slot + s.kv_len) for s in segments]
    slots = None if len(segments) == 1 else torch.cat(places)
    ids = torch.zeros(row, dtype=torch.int64)
    return PackedBatch(ids, ids, segments, slots, None), cache


def attend(backend: Attention, batch: PackedBatch, **options) -> torch.Tensor:
    """Attend from random rows whose heads lie in one tensor, as fused layers have them."""
    torch.manual_seed(1)
    heads = torch.randn(len(batch.token_ids), HEADS + KV_HEADS, DIM)
    values = torch.randn(len(batch.token_ids), KV_HEADS, VALUE_DIM)
    return backend.attend(LAYER, batch, heads[:, :HEADS], heads[:, HEADS:], values, scaling=0.4, **options)


def agree(shapes, step=16, **options) -> None:
    batch, cache = scene(shapes, step)
    expected = attend(SdpaAttention(cache, 96), batch, **options)
    again, fresh = scene(shapes, step)
    got = attend(PagedAttention(fresh, 96), again, **options)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=2e-6)
    for ours, theirs in ((fresh.keys, cache.keys), (fresh.values, cache.values)):
        torch.testing.assert_close(ours[LAYER], theirs[LAYER], rtol=0, atol=0, equal_nan=True)


BATCHES = {
    "fresh prompt": [(0, 13, [])],
    "verification": [(20, 5, [])],
    "chunk and tree": [(11, 4, TREE)],
    "ragged": [(0, 7, []), (30, 1, []), (12, 5, []), (40, 35, [])],
    "ragged with trees": [(0, 7, []), (30, 1, TREE), (12, 5, []), (25, 3, [-1, 0])],
}


@pytest.mark.interpreter
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("shapes", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(
    "options",
    [{}, {"window": 4}, {"window": 16, "softcap": 1.5}, {"sinks": torch.linspace(-2, 2, HEADS)}],
    ids=["plain", "window", "window and soft cap", "sinks"],
)
@pytest.mark.sampled(8, slow=0)
def test_outputs_are_those_of_torchs_attention(shapes, options) -> None:
    agree(shapes, **options)


@pytest.mark.interpreter
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("step", [1, 3, 8, 64])
def test_requests_may_lie_anywhere(step) -> None:
    agree(BATCHES["ragged"], step)


@pytest.mark.interpreter
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("factory", [SdpaAttention, PagedAttention])
def test_a_row_alone_does_not_see_the_branches_beside_it(factory, window) -> None:
    whole = segment(0, 0, 5, 1, [-1, -1, 1, 2])
    keys, values, query = (torch.randn(10, n, DIM) for n in (KV_HEADS, KV_HEADS, HEADS))
    outputs = []
    for sizes in ((5,), (1, 2, 1, 1)):
        cache = KVCache(16, CPU)
        cache.write(LAYER, keys[:5], values[:5], slice(0, 5))
        backend = (SdpaAttention if sizes == (5,) else factory)(cache, 96)
        parts, start = [], 0
        for size in sizes:
            end = start + size
            piece = Segment(
                0, size, 0, 5 + start, whole.tree_mask[start:end, :end], whole.depths[start:end], start
            )
            batch = PackedBatch(torch.zeros(size, dtype=torch.int64), torch.zeros(size), [piece], None, None)
            rows = (tensor[5 + start : 5 + end] for tensor in (query, keys, values))
            parts.append(backend.attend(LAYER, batch, *rows, scaling=0.5, window=window))
            start = end
        outputs.append(torch.cat(parts))
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-5, atol=2e-6)


@pytest.mark.interpreter
@pytest.mark.usefixtures("kernels")
def test_float64_is_left_to_torch() -> None:
    batch, _ = scene(BATCHES["ragged"], 16)
    outputs = []
    for factory in (SdpaAttention, PagedAttention):
        cache = KVCache(256, CPU)
        rows = [
            torch.ones(len(batch.token_ids), n, DIM, dtype=torch.float64) for n in (HEADS, KV_HEADS, KV_HEADS)
        ]
        cache.ensure(LAYER, *rows[1:])
        cache.keys[LAYER].fill_(0.5)
        cache.values[LAYER].fill_(0.5)
        outputs.append(factory(cache, 96).attend(LAYER, batch, *rows, scaling=0.4))
    assert torch.equal(*outputs)


SCRIPTED = {"method": "speccheck.proposers.Scripted", "num_speculative_tokens": 4, "wrong": 0.3, "seed": 1}
PROMPTS = [[5, 9, 3], list(range(20, 39)), [7]]


def generate(name: str, backend: str, speculation=None) -> tuple[list[list[int]], LLM]:
    llm = LLM(
        tiny(name),
        speculative_config=speculation,
        attention_backend=backend,
        device="cpu",
        max_model_len=64,
        skip_tokenizer_init=True,
    )
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True))
    return [output.outputs[0].token_ids for output in outputs], llm


@pytest.mark.interpreter
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("name", "shape"),
    [("llama", "chain"), ("llama", "tree"), ("gemma2", "tree"), ("gpt_oss", "chain"), ("gpt_oss", "tree")],
)
def test_greedy_tokens_are_those_of_torchs_attention(name, shape) -> None:
    torch.use_deterministic_algorithms(False)  # experts are chosen by an operation that has no such form
    expected, _ = generate(name, "sdpa")
    texts = [[*p, *e] for p, e in zip(PROMPTS, expected, strict=True)]
    got, llm = generate(name, "triton", SCRIPTED | {"shape": shape, "texts": texts})
    assert got == expected
    assert type(llm._built.scorer.runner.attention).__name__ == "PagedAttention"
    metrics = llm._built.engine.metrics
    assert 0 < metrics.num_accepted_tokens < metrics.num_draft_tokens
    assert metrics.proposer_errors == 0


CUDA = torch.device("cuda")


def choose(wanted: str, device: torch.device) -> AttentionFactory:
    return choose_attention(
        wanted, AttentionNeeds(device, torch.float32, is_requested=wanted != "auto"), CONFIG, SdpaAttention
    )


def test_the_attention_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    use_backends(monkeypatch, TritonBackend())
    monkeypatch.setattr("specdec_runtime.backends.attention.disagreement", lambda *_: None)
    assert choose("auto", CPU) is choose("sdpa", CPU) is choose("sdpa", CUDA) is SdpaAttention
    assert choose("auto", CUDA).func is choose("triton", CUDA).func is PagedAttention
    with pytest.raises(ConfigError, match=r"needs a CUDA device.*TRITON_INTERPRET=1"):
        choose("triton", CPU)


@pytest.mark.interpreter
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_look_at_load_finds_nothing_wrong_with_right_kernels(dtype, kernels) -> None:
    assert disagreement(PagedAttention, SdpaAttention, AttentionNeeds(CPU, dtype), CONFIG) is None


@pytest.mark.interpreter
@pytest.mark.parametrize(
    "change", [{"scale": 0.3}, {"tree_mask": None}, {"context_lens": torch.tensor([19, 21, 21])}]
)
def test_the_look_at_load_finds_wrong_kernels(change, kernels, monkeypatch) -> None:
    def wrong(*args, **options):
        if "context_lens" in change:
            args = (*args[:5], change["context_lens"])
        return paged_attention(*args, **{**options, **change_of_options})

    change_of_options = {key: value for key, value in change.items() if key != "context_lens"}
    monkeypatch.setattr("specdec_kernels.cuda.attention.paged_attention", wrong)
    assert "differs from torch's by" in str(
        disagreement(PagedAttention, SdpaAttention, AttentionNeeds(CPU, torch.float32), CONFIG)
    )


def test_kernels_that_fail_at_load_are_not_used(monkeypatch, caplog) -> None:
    def fail(*args, **options):
        raise RuntimeError("no kernel image")

    monkeypatch.setattr("specdec_kernels.cuda.attention.kv_write", fail)
    use_backends(monkeypatch, TritonBackend())
    monkeypatch.setattr("specdec_kernels.cuda.backend._declined", lambda *_, **__: None)
    assert choose("auto", CPU) is SdpaAttention
    with pytest.raises(ConfigError, match=r"cannot be used here .*RuntimeError: no kernel image"):
        choose("triton", CPU)
    assert choose("sdpa", CPU) is SdpaAttention


def test_heads_are_those_of_the_configuration() -> None:
    assert _shapes(CONFIG) == {(HEADS, KV_HEADS, 16)}
    assert _shapes(GPT2Config(n_embd=64, n_head=2)) == {(2, 2, 32)}
    assert _shapes(LlamaConfig(hidden_size=64, num_attention_heads=2, head_dim=8)) == {(2, 2, 8)}
    with pytest.raises(AttributeError):
        disagreement(SdpaAttention, SdpaAttention, AttentionNeeds(CPU, torch.float32), PretrainedConfig())


def test_without_triton_attention_is_torchs(monkeypatch, caplog) -> None:
    monkeypatch.setattr("specdec_kernels.cuda.backend.find_spec", lambda name: None)
    use_backends(monkeypatch, TritonBackend())
    assert choose("auto", CUDA) is SdpaAttention
    assert "triton is not installed: pip install" in caplog.text
    with pytest.raises(ConfigError, match=r"pip install 'specdec-kernels\[triton\]'"):
        choose("triton", CUDA)


def test_without_a_backend_attention_is_torchs(monkeypatch, caplog) -> None:
    use_backends(monkeypatch)
    assert choose("auto", CUDA) is SdpaAttention
    assert "pip install specdec-kernels" in caplog.text
    with pytest.raises(ConfigError, match="pip install specdec-kernels"):
        choose("triton", CUDA)


def test_values_of_the_option() -> None:
    with pytest.raises(
        ConfigError,
        match="attention_backend='fast' must be one of auto, sdpa, triton, cpu, layers",
    ):
        LLM("zoo", attention_backend="fast")
