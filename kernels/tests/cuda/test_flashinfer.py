"""Attention by FlashInfer against torch's, with a stub in its place that computes from the arrays it is given."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import flashinfer_stub as stub
import numpy as np
import pytest
import torch
from pretend import CUDA, PretendDevice
from pretend.requests import TEXT, params
from transformers import LlamaConfig

from specdec import LLM, ConfigError
from specdec.backends.attention import choose_attention, disagreement
from specdec.interfaces import AttentionNeeds, Declined, KVCache, LayerShape, PackedBatch, Segment
from specdec.runner import SdpaAttention
from specdec_commands.doctor import _backends
from specdec_kernels.cuda.attention import PagedAttention
from specdec_kernels.flashinfer.attention import FlashInferAttention
from specdec_kernels.flashinfer.backend import FlashInferBackend
from specdec_kernels.flashinfer.page_indices import PageIndices, tree_mask

HEADS, KV_HEADS, DIM, STEP = 4, 2, 8, 64
CONFIG = LlamaConfig(hidden_size=DIM * HEADS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS)
NEEDS = AttentionNeeds(CUDA, torch.float16, is_requested=True)
TREE = [-1, 0, 0, -1, 2, 3]


@pytest.fixture(scope="module")
def device() -> Iterator[PretendDevice]:
    with PretendDevice() as entered:
        yield entered


@pytest.fixture
def library(device, monkeypatch) -> None:
    """The stub is installed, and nothing is on its way."""
    monkeypatch.setitem(sys.modules, "flashinfer", stub.module(**{stub.PREFILL: stub.Wrapper}))
    monkeypatch.setattr(torch.cuda, "Event", stub.Event)
    stub.Event.on_the_way.clear()
    stub.Wrapper.plans.clear()
    stub.Wrapper.num_runs = 0


def segment(row: int, first_slot: int, cached: int, chunk: int, parents: list[int]) -> Segment:
    """A chain, or a chain with a tree behind it."""
    made = Segment(row, chunk + len(parents), first_slot, cached, num_drafted=len(parents))
    if parents:
        made.plant(parents)
    return made


class Scene:
    """Requests of (cached rows, chunk rows, tree's parents), with the same numbers on any device; other rows are NaN.

    Args:
        shapes: the requests; `shared` of them read their first 32 rows where the first request has them.
    """

    def __init__(self, shapes: list[tuple[int, int, list[int]]], shared: tuple[int, ...] = ()) -> None:
        self.segments: list[Segment] = []
        row = 0
        for number, shape in enumerate(shapes):
            self.segments.append(segment(row, STEP * (number + 1), *shape))
            row += self.segments[-1].num_rows
        self.num_rows, self.num_slots = row, STEP * (len(shapes) + 2)
        torch.manual_seed(0)
        self.cached = torch.randn(2, self.num_slots, KV_HEADS, DIM).half()
        self.new = [torch.randn(row, n, DIM).half() for n in (HEADS, KV_HEADS, KV_HEADS)]
        for number in shared:
            first, own = STEP, self.segments[number].first_slot
            self.cached[:, own : own + 32] = self.cached[:, first : first + 32]
        self.shared = {self.segments[number].first_slot: (STEP, 32) for number in shared}

    def cache(self, device: torch.device, dtype: torch.dtype, *, is_shared: bool) -> KVCache:
        cache = KVCache(self.num_slots, device)
        cache.allocate(0, LayerShape(KV_HEADS, DIM, DIM, dtype))
        for place, given in zip((cache.keys[0], cache.values[0]), self.cached.to(dtype), strict=True):
            rows = torch.full_like(given, torch.nan)
            for s in self.segments:
                skipped = 32 if is_shared and s.first_slot in self.shared else 0
                own = slice(s.first_slot + skipped, s.first_slot + s.num_cached)
                rows[own] = given[own]
            place.copy_(rows)
        cache.shared |= self.shared if is_shared else {}
        return cache

    def batch(self, device: torch.device) -> PackedBatch:
        slots = [torch.arange(s.first_slot + s.num_cached, s.first_slot + s.kv_len) for s in self.segments]
        ids = torch.zeros(self.num_rows, dtype=torch.int64).to(device)
        return PackedBatch(ids, ids, self.segments, torch.cat(slots).to(device), None)

    def expected(self, **options) -> torch.Tensor:
        """Torch's, from the same numbers in float32."""
        cpu = torch.device("cpu")
        cache = self.cache(cpu, torch.float32, is_shared=False)
        given = (part.float() for part in self.new)
        return SdpaAttention(cache, 96).attend(0, self.batch(cpu), *given, scaling=0.4, **options)

    def attend(self, attention: PagedAttention, batch: PackedBatch, **options) -> torch.Tensor:
        return attention.attend(0, batch, *(part.to(CUDA) for part in self.new), scaling=0.4, **options).cpu()


SCENES = {
    "fresh prompt": ([(0, 13, [])], ()),
    "one step": ([(20, 1, [])], ()),
    "chunks of prompts and steps": ([(0, 7, []), (30, 1, []), (12, 5, []), (16, 35, [])], ()),
    "a tree": ([(11, 1, TREE)], ()),
    "trees alone": ([(30, 1, TREE), (25, 3, [-1, 0]), (16, 1, [-1, -1, -1])], ()),
    "chains and trees": ([(0, 7, []), (30, 1, TREE), (12, 5, []), (25, 3, [-1, 0])], ()),
    "shared blocks": ([(40, 2, []), (32, 5, []), (36, 1, TREE), (0, 9, [])], (1, 2)),
}
OPTIONS = {
    "plain": {}, "window": {"window": 4}, "window of one": {"window": 1}, "window and cap": {"window": 16, "softcap": 1.5},
}  # fmt: skip


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(("shapes", "shared"), SCENES.values(), ids=SCENES)
def test_outputs_are_those_of_torchs_attention(shapes, shared, options) -> None:
    scene = Scene(shapes, shared)
    attention = FlashInferAttention(stub.Wrapper, scene.cache(CUDA, torch.float16, is_shared=True), 96)
    batch = scene.batch(CUDA)
    got = scene.attend(attention, batch, **options)
    torch.testing.assert_close(got.float(), scene.expected(**options), rtol=2e-3, atol=2e-3)
    kinds = {s.tree_mask is None for s in scene.segments}
    assert (len(stub.Wrapper.plans), stub.Wrapper.num_runs) == (len(kinds), len(kinds))
    assert {plan["page_size"] for plan in stub.Wrapper.plans} == {16}
    scene.attend(attention, batch, **options)
    assert len(stub.Wrapper.plans) == len(kinds), "layers share a plan"
    scene.attend(attention, scene.batch(CUDA), **options)
    assert len(stub.Wrapper.plans) == 2 * len(kinds), "each pass has its own"


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("window", [None, 3])
def test_levels_of_a_tree_do_not_see_the_branches_beside_them(window) -> None:
    whole = segment(0, STEP, 5, 1, [-1, -1, 1, 2])
    scene = Scene([(5, 1, [-1, -1, 1, 2])])
    cache = scene.cache(CUDA, torch.float16, is_shared=True)
    attention, outputs, start = FlashInferAttention(stub.Wrapper, cache, 96), [], 0
    for size in (1, 2, 1, 1):
        end = start + size
        piece = Segment(
            0, size, STEP, 5 + start, whole.tree_mask[start:end, :end], whole.depths[start:end], start
        )
        ids = torch.zeros(size, dtype=torch.int64).to(CUDA)
        rows = (part[start:end].to(CUDA) for part in scene.new)
        batch = PackedBatch(ids, ids, [piece], None, None)
        outputs.append(attention.attend(0, batch, *rows, scaling=0.4, window=window).cpu())
        start = end
    expected = scene.expected(window=window)
    torch.testing.assert_close(torch.cat(outputs).float(), expected, rtol=2e-3, atol=2e-3)


def test_pages_follow_each_other_behind_shared_ones() -> None:
    segments = [Segment(0, 3, 64, 20), Segment(3, 1, 128, 47), Segment(4, 2, 0, 14)]
    found = PageIndices.of(segments, 16, {128: (64, 32)})
    arrays = found.qo_indptr, found.kv_indptr, found.kv_indices, found.last_page_lens
    assert [array.dtype for array in arrays] == [torch.int32] * 4
    assert [array.tolist() for array in arrays] == [
        [0, 3, 4, 6],
        [0, 2, 5, 6],
        [4, 5, 4, 5, 10, 0],
        [7, 16, 16],
    ]
    assert found.rows.tolist() == [0, 1, 2, 3, 4, 5]


def test_masks_of_trees_have_windows_by_position() -> None:
    trees = [segment(0, 0, 2, 1, [-1, -1]), segment(3, 0, 1, 1, [])]
    trees[1].tree_mask = torch.ones(1, 1, dtype=torch.bool)
    rows = [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 1]]
    assert tree_mask(trees, None).tolist() == [*np.array(rows, bool).flat, True, True]
    windowed = [[0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 1, 0, 1]]
    assert tree_mask(trees, 2).tolist() == [*np.array(windowed, bool).flat, True, True]


@pytest.mark.usefixtures("library")
def test_layers_that_it_does_not_take_keep_the_triton_kernel(caplog) -> None:
    scene = Scene(SCENES["chains and trees"][0])
    for _ in range(2):
        attention = FlashInferAttention(stub.Wrapper, scene.cache(CUDA, torch.float16, is_shared=True), 96)
        for _ in range(2):
            got = scene.attend(attention, scene.batch(CUDA), sinks=torch.linspace(-2, 2, HEADS).to(CUDA))
    expected = scene.expected(sinks=torch.linspace(-2, 2, HEADS))
    torch.testing.assert_close(got.float(), expected, rtol=2e-3, atol=2e-3)
    assert stub.Wrapper.num_runs == 0
    wanted = "flashinfer: the Triton kernel runs the attention of layers with attention sinks, which its prefill kernels ignore"
    assert [record.getMessage() for record in caplog.records] == [wanted] * 2


class Uncausal(stub.Wrapper):
    """A library with an error."""

    def plan(self, *args, causal: bool, **options) -> None:
        super().plan(*args, causal=False, **options)


class Earlier(stub.Wrapper):
    """A version with other arguments."""

    def plan(self, qo_indptr, paged_kv_indptr) -> None:
        raise NotImplementedError


def chosen(needs: AttentionNeeds = NEEDS, wanted: str = "flashinfer") -> object:
    return choose_attention(wanted, needs, CONFIG, SdpaAttention)


@pytest.mark.usefixtures("library")
def test_core_compares_it_before_it_is_used(monkeypatch, caplog) -> None:
    assert disagreement(FlashInferBackend().attention(NEEDS), SdpaAttention, NEEDS, CONFIG) is None
    assert {plan["causal"] for plan in stub.Wrapper.plans} == {True, False}, "chains and trees"
    assert chosen().func is FlashInferAttention
    for wrapper, why in (
        (Uncausal, "its attention differs from torch's by"),
        (Earlier, "it raised TypeError: Earlier.plan() got an unexpected keyword"),
    ):
        monkeypatch.setattr(sys.modules["flashinfer"], stub.PREFILL, wrapper)
        with pytest.raises(
            ConfigError, match=r"attention_backend='flashinfer' cannot be used here"
        ) as raised:
            chosen()
        assert why in str(raised.value)


@pytest.mark.usefixtures("library")
def test_it_is_never_chosen_unasked(monkeypatch) -> None:
    assert chosen(AttentionNeeds(CUDA, torch.float16), "auto").func is PagedAttention
    monkeypatch.setenv("SPECDEC_BACKENDS", "flashinfer")
    assert chosen(AttentionNeeds(CUDA, torch.float16), "auto") is SdpaAttention


DECLINED = {
    "elsewhere": (AttentionNeeds(torch.device("cpu"), torch.float16, is_requested=True), "it needs a CUDA device"),
    "invariant": (AttentionNeeds(CUDA, torch.float16, True, True), "so its attention is not batch-invariant"),
    "float32": (AttentionNeeds(CUDA, torch.float32, is_requested=True), "take float16 and bfloat16, not torch.float32"),
    "unasked": (AttentionNeeds(CUDA, torch.float16), 'it attends where attention_backend="flashinfer" asks for it'),
}  # fmt: skip


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("needs", "why"), DECLINED.values(), ids=DECLINED)
def test_reasons(needs, why) -> None:
    answer = FlashInferBackend().attention(needs)
    assert isinstance(answer, Declined)
    assert why in answer.reason


def test_a_library_that_is_missing_or_wrong_is_told(device, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(
        ConfigError, match=r"flashinfer is not installed: pip install 'specdec-kernels\[flashinfer\]'"
    ):
        chosen()
    monkeypatch.setitem(sys.modules, "flashinfer", stub.module())
    with pytest.raises(
        ConfigError, match=f"flashinfer 0.0-stub has no {stub.PREFILL}: pip install --upgrade"
    ):
        chosen()


OPTIONS_OF_LLM = {
    "dtype": "float16", "max_model_len": 256, "max_num_seqs": 4, "max_num_batched_tokens": 64, "num_gpu_blocks_override": 100,
    "device": "cuda:0",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "is_eager",
    [pytest.param(True, marks=pytest.mark.full, id="eager"), pytest.param(False, id="graphs")],
)
def test_tokens_are_those_of_the_triton_kernel(is_eager) -> None:
    from transformers import AutoTokenizer

    import specdec_zoo

    ids = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))(3 * TEXT)["input_ids"][:90]
    prompts = [[*ids, *ids[row : row + 3]] for row in range(4)]
    options = OPTIONS_OF_LLM | {"enforce_eager": is_eager, "max_num_batched_tokens": 128}
    expected, _, _ = served(prompts, None, options)
    tree = {"method": "speccheck.proposers.Scripted", "num_speculative_tokens": 4, "wrong": 0.3, "seed": 1}
    tree |= {"shape": "tree", "texts": [[*p, *text] for p, text in zip(prompts, expected, strict=True)]}
    for name in ("triton", "flashinfer"):
        texts, plans, num_accepted = served(prompts, tree, options | {"attention_backend": name})
        assert texts == expected
        assert num_accepted > 0
        kinds = set() if name == "triton" else {True, False} if is_eager else {True}
        assert {plan["causal"] for plan in plans} == kinds, "captured passes keep the Triton kernel"


def served(prompts, config, options) -> tuple[list[list[int]], list[dict[str, object]], int]:
    """Return tokens of greedy requests that share a prefix, what was planned for them, and how many drafts were accepted."""
    llm = LLM("zoo", speculative_config=config, **options)
    stub.Wrapper.plans.clear()
    first = llm.generate(prompts[:1], params("greedy", 1))  # its prompt stays in the cache
    outputs = [*first, *llm.generate(prompts[1:], params("greedy", len(prompts) - 1))]
    assert sum(output.num_cached_tokens or 0 for output in outputs) > 0
    llm.shutdown()
    num_accepted = sum(output.metrics.num_accepted_tokens for output in outputs)
    return [output.outputs[0].token_ids for output in outputs], list(stub.Wrapper.plans), num_accepted


@pytest.mark.usefixtures("device")
def test_doctor_says_why_it_offers_nothing(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    remedy = "pip install 'specdec-kernels[flashinfer]'"
    assert _backends()["flashinfer"] == f"nothing: flashinfer is not installed: {remedy}"
