"""Requests that share the blocks of a prefix on the pretend device: tokens are the CPU's, and memory is counted."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from pretend.requests import METHODS, TEXT, params

from specdec import LLM, RequestOutput, SamplingParams
from specdec.engine import KVManager, SlotPool
from specdec_kernels.layers.device_form import DeviceForm

pytestmark = pytest.mark.slow

BLOCK = 16
NUM_REQUESTS, MAX_TOKENS = 12, 32
OPTIONS = {
    "dtype": "float32", "max_model_len": 256, "max_num_seqs": 12, "max_num_batched_tokens": 128, "enable_prefix_caching": True,
}  # fmt: skip
SMALL = 26
"""Blocks of a cache in which requests preempt each other."""
ABORTED = {9: ["r3", "r0"], 14: ["r8"]}
"""By step: the first request, whose rows others read, and two more."""
FULL = (7, 13)
"""Steps in which a request finds no room, so that one is preempted; others may be as well."""
DRAFTS_FROM_IDS = ("ngram", "suffix")
SLOW = ("suffix", "draft_model", "eagle3", "eagle3-tree", "mtp")
"""Methods whose passes are like those of others."""
SERVED = [
    *(pytest.param(method, {}, marks=[pytest.mark.full] * (method in SLOW), id=method) for method in METHODS),
    pytest.param("eagle3-tree", {"deterministic": True}, id="eagle3-tree by paths"),
    pytest.param("ngram", {"enforce_eager": True}, marks=pytest.mark.full, id="ngram eager"),
]


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Two long prefixes, one of which begins as the other does, each with a few more tokens."""
    from transformers import AutoTokenizer

    import specdec_zoo

    ids = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))(3 * TEXT)["input_ids"][:100]
    return [[*(ids if row % 4 else ids[:70]), *ids[row : row + 4 + row % 3]] for row in range(NUM_REQUESTS)]


@pytest.fixture(scope="module")
def expected(prompts) -> list[RequestOutput]:
    llm = LLM("zoo", device="cpu", **OPTIONS | {"enable_prefix_caching": False})
    outputs = llm.generate(prompts, mixed())
    llm.shutdown()
    return outputs


def mixed() -> list[SamplingParams]:
    """Parameters of greedy and sampled requests by turns."""
    both = zip(*(params(name, NUM_REQUESTS, MAX_TOKENS) for name in ("greedy", "sampled")), strict=True)
    return [pair[row % 2] for row, pair in enumerate(both)]


def made(method: str, num_blocks: int, **options: object) -> LLM:
    config = METHODS[method]
    fixed = None if config is None else config | {"on_proposer_error": "raise", "adaptive": False}
    options = OPTIONS | {"num_gpu_blocks_override": num_blocks} | options
    return LLM("zoo", device="cuda:0", speculative_config=fixed, **options)


@dataclass
class Watched:
    """What was seen of the cache while requests ran."""

    llm: LLM
    num_shared: int = 0
    """Most rows that requests read and did not have, all of them together."""
    num_running: int = 0
    """Most requests that ran at once."""
    num_blocks: int = 0
    """Most blocks that belonged to requests."""
    rows: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    """Keys of shared rows, by slot and number."""

    def look(self) -> None:
        """Count, and check that rows that are still read are what they were."""
        engine, cache = self.llm._built.engine, self.llm._built.scorer.cache
        pool = engine._scheduler._kv.pool
        self.num_shared = max(self.num_shared, sum(count for _, count in cache.shared.values()))
        self.num_running = max(self.num_running, engine.num_sequences[0])
        self.num_blocks = max(self.num_blocks, (pool.num_slots - pool.num_free_slots) // BLOCK)
        found = {
            (slot, count): torch.stack([cache.keys[layer].held[slot : slot + count] for layer in cache.keys])
            for slot, count in set(cache.shared.values())
        }
        for place, rows in found.items():
            assert torch.equal(rows, self.rows.get(place, rows)), f"shared rows {place} have been written"
        self.rows = found

    def run(self, prompts, chosen, aborted: dict[int, list[str]] | None = None) -> dict[str, RequestOutput]:
        """Run requests `r0`, `r1`, ..., aborting some before a step."""
        engine, input_processor, done = self.llm._built.engine, self.llm._input_processor, {}
        for row, (prompt, own) in enumerate(zip(prompts, chosen, strict=True)):
            engine.add(input_processor.prepare(f"r{row}", prompt, own, is_streaming=False))
        step, kv = 0, engine._scheduler._kv
        refusals: list[bool] = []
        kv.reserve = lambda *room: refusals.pop() if refusals else KVManager.reserve(kv, *room)
        while engine.has_work:
            refusals += [False, False] if aborted and step in FULL else []
            done |= {output.request_id: output for output in engine.abort((aborted or {}).get(step, []))}
            done |= {output.request_id: output for output in engine.step()}
            self.look()
            step += 1
        return done


@pytest.mark.parametrize(("method", "options"), SERVED)
@pytest.mark.sampled(0, slow=1)
def test_tokens_are_the_cpus(method: str, options, device, prompts, expected) -> None:
    llm = made(method, SMALL, **options)
    watched, pool = Watched(llm), llm._built.engine._scheduler._kv.pool
    outputs = watched.run(prompts, mixed(), ABORTED)
    assert watched.num_shared > 0
    assert llm._built.engine.metrics.num_preemptions > 0
    gone = [name for names in ABORTED.values() for name in names]
    for row, wanted in enumerate(expected):
        got, own = outputs[f"r{row}"].outputs[0], wanted.outputs[0].token_ids
        is_cut = f"r{row}" in gone and got.finish_reason == "abort"
        assert got.token_ids == (own[: len(got.token_ids)] if is_cut else own)
    assert sum(outputs[name].outputs[0].finish_reason == "abort" for name in gone) > 1
    assert not llm._built.scorer.cache.shared
    assert pool.num_free_slots == pool.num_slots
    if method not in ("plain", *DRAFTS_FROM_IDS):
        assert sum(output.metrics.num_draft_tokens for output in outputs.values()) > 0
    llm.shutdown()


def test_a_form_that_reads_the_cache_itself_copies_prefixes(device, monkeypatch, caplog) -> None:
    monkeypatch.setattr(DeviceForm, "uses_attention", False)
    llm = made("plain", SMALL)
    assert type(llm._built.engine._scheduler._kv.pool) is SlotPool
    (warning,) = [record.message for record in caplog.records if "copied, not shared" in record.message]
    assert warning.endswith(": DeviceForm reads runs of the cache")
    llm.shutdown()


def test_a_proposer_that_reads_the_cache_has_prefixes_copied(device, prompts, expected, caplog) -> None:
    config = {"method": "speccheck.on_target.Reading", "num_speculative_tokens": 3, "adaptive": False}
    options = OPTIONS | {"num_gpu_blocks_override": SMALL}
    llm = LLM("zoo", device="cuda:0", speculative_config=config | {"on_proposer_error": "raise"}, **options)
    assert type(llm._built.engine._scheduler._kv.pool) is SlotPool
    (warning,) = [record.message for record in caplog.records if "copied, not shared" in record.message]
    assert warning.endswith(": the proposer reads runs of the cache")
    outputs = Watched(llm).run(prompts, mixed())
    for row, wanted in enumerate(expected):
        assert outputs[f"r{row}"].outputs[0].token_ids == wanted.outputs[0].token_ids
    kept = {len(text): layers[0][0] for text, layers in llm._built.engine.proposer.kept[-8:]}
    assert kept
    assert all(len(keys) == length for length, keys in kept.items())
    llm.shutdown()


@pytest.mark.parametrize(
    "num_blocks", [pytest.param(400, id="large"), pytest.param(40, marks=pytest.mark.full, id="small")]
)
def test_memory_of_64_requests_with_one_prompt(num_blocks: int, device, prompts) -> None:
    """Blocks that they hold, and how many run at once; tokens are the same whether they share or copy."""
    size, num_new, texts, seen = 64, 8, [], []
    prompt = prompts[1][:100]
    whole, prefix = -(-(len(prompt) + num_new + 1) // BLOCK), (len(prompt) - 1) // BLOCK
    chosen = params("sampled", size, num_new)
    for is_shared in (False, True):
        llm = made("plain", num_blocks, max_num_seqs=size, max_num_batched_tokens=512, enforce_eager=True)
        kv = llm._built.engine._scheduler._kv
        if not is_shared:
            kv.pool = SlotPool(llm._built.scorer.cache, BLOCK)
        watched = Watched(llm)
        watched.run([prompt], chosen[:1])  # it leaves its prompt in the cache
        outputs = watched.run([prompt] * size, chosen)
        texts.append([outputs[f"r{row}"].outputs[0].token_ids for row in range(size)])
        seen.append((watched.num_running, watched.num_blocks))
        bytes_per_block = BLOCK * llm._built.scorer.runner.bytes_per_token
        llm.shutdown()
    assert texts[0] == texts[1]
    (running, copied), (more, shared) = seen
    most_copied = min(size, num_blocks // whole)
    most_shared = min(size, 1 + (num_blocks - whole) // (whole - prefix))
    assert (running, copied) == (most_copied, most_copied * whole)
    assert (more, shared) == (most_shared, whole + (most_shared - 1) * (whole - prefix))
    sizes = copied * bytes_per_block, shared * bytes_per_block
    print(
        f"\nbytes: {sizes[0]} of {running} requests that copy, {sizes[1]} of {more} that share"
    )  # pytest -rP shows it
