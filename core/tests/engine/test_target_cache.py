"""Drafts on the target's own cache: exact texts, exact rows before them, and nothing written elsewhere."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from speccheck.engines import engine_of, greedy, make_llm, proposer_of, tokens_of
from speccheck.models import copied
from speccheck.on_target import OnTarget, Reading, Straying
from transformers import DynamicCache

from specdec import LLM, ConfigError, ModelError, PluginError
from specdec.engine.kv_manager import KVManager
from specdec.interfaces import DraftSlots
from specdec_hosting import HostTarget, open_proposer
from specdec_runtime.models import cache_argument
from specdec_runtime.scorers.transformers import TransformersScorer

RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "alone": {"max_num_seqs": 1},
    "eager": {"enforce_eager": True},
    "no prefixes": {"enable_prefix_caching": False},
    "chunks": {"max_num_batched_tokens": 11},
    "preempted": {"max_num_seqs": 6, "max_num_batched_tokens": 40, "max_model_len": 128, "num_gpu_blocks_override": 34},
}  # fmt: skip


def on_target(name: str = "OnTarget", **keys: Any) -> dict[str, Any]:
    known = {"num_speculative_tokens": 4, "on_proposer_error": "raise", "adaptive": False}
    return known | keys | {"method": f"speccheck.on_target.{name}"}


def made(subject, run: str = "plain", **keys: Any) -> LLM:
    return make_llm(subject.model, on_target(**keys), block_size=4, strict_drafts=True, **RUNS[run])


def asked_twice(llm: LLM, subject) -> list[list[list[int]]]:
    return [tokens_of(llm, subject.prompts, greedy(32)) for _ in range(2)]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.sampled(4, slow=4)
def test_texts_are_the_targets(subject, run, noise) -> None:
    llm = made(subject, run, noise=noise)
    assert asked_twice(llm, subject) == [subject.expected] * 2
    metrics = engine_of(llm).metrics
    assert metrics.num_draft_tokens > 100
    if noise:
        assert 0.1 < metrics.num_accepted_tokens / metrics.num_draft_tokens < 0.9
    else:  # nothing is drafted before the rows that it reads are there, or they would be wrong
        assert metrics.num_accepted_tokens == metrics.num_draft_tokens
    assert (metrics.num_preemptions > 0) == (run == "preempted")


def test_a_drafted_row_that_verification_leaves_would_change_the_text(subject) -> None:
    llm = made(subject, noise=0.3)
    engine = engine_of(llm)
    score = engine._scorer.score

    def leaving(batch):
        cache, kept = engine._scorer.cache, []
        for row in batch.sampled:
            start = row.sequence.first_slot + row.sequence.num_tokens
            kept.append(slice(start, start + max(0, row.num_nodes - 1)))
        tensors = [*cache.keys.values(), *cache.values.values()]
        before = [[tensor[rows].clone() for rows in kept] for tensor in tensors]
        scores = score(batch)
        for tensor, parts in zip(tensors, before, strict=True):
            for rows, part in zip(kept, parts, strict=True):
                tensor[rows] = part
        return scores

    engine._scorer.score = leaving
    assert tokens_of(llm, subject.prompts, greedy(32)) != subject.expected


def check_published(llm: LLM, subject) -> int:
    """Compare every row that a prompt can find with the model's own; returns the number of rows."""
    blocks = engine_of(llm)._scheduler._kv.pool._prefixes._blocks
    parents = {key: content for content, (_, key) in blocks.items()}
    cache, num_rows = engine_of(llm)._scorer.cache, 0
    for content, (block, _) in blocks.items():
        ids, parent = np.frombuffer(content[1], np.int32).tolist(), content[0]
        size = len(ids)
        while parent in parents:
            ids[:0] = np.frombuffer(parents[parent][1], np.int32).tolist()
            parent = parents[parent][0]
        if parent:
            continue  # the block before it is gone, so that nobody finds it
        exact, model = DynamicCache(), copied(subject.model)
        with torch.inference_mode():
            model(torch.tensor([ids]), use_cache=True, **{cache_argument(model): exact})
        for layer, keys in cache.keys.items():
            rows = keys[block * size : (block + 1) * size]
            assert torch.allclose(rows, exact.layers[layer].keys[0, :, -size:].transpose(0, 1), atol=1e-4)
        num_rows += size
    return num_rows


def interrupted(llm: LLM, subject) -> None:
    """Ask everything, after requests that are left after some steps."""
    for num_steps in range(1, 9):
        streams = [llm.stream(prompt, greedy(32)) for prompt in subject.prompts[:2]]
        for stream in streams:
            for _ in range(num_steps):
                next(stream)
        for stream in streams:
            stream.close()
    tokens_of(llm, subject.prompts, greedy(32))


def test_published_rows_are_the_targets(subject, monkeypatch) -> None:
    llm = made(subject, noise=0.3)
    interrupted(llm, subject)
    assert asked_twice(llm, subject) == [subject.expected] * 2
    assert check_published(llm, subject) > 300

    def publish(self: KVManager, sequence) -> None:
        """Publish the row of the last committed token too, which may be that of a drafted one in its place."""
        self.pool.publish(sequence, sequence.token_ids[: sequence.num_tokens])

    monkeypatch.setattr(KVManager, "publish", publish)
    llm = made(subject, noise=0.3)
    interrupted(llm, subject)
    with pytest.raises(AssertionError):
        check_published(llm, subject)


@pytest.mark.parametrize("way", [*Straying.ways, "out of turn"])
def test_nothing_is_written_where_no_draft_belongs(subject, monkeypatch, way) -> None:
    monkeypatch.setattr(Straying, "way", way)
    llm = made(subject, name="Straying", on_proposer_error="fallback")
    assert asked_twice(llm, subject) == [subject.expected] * 2
    assert engine_of(llm).metrics.proposer_errors > 0
    with pytest.raises(PluginError, match="would write positions"):
        tokens_of(made(subject, name="Straying"), subject.prompts, greedy(32))


def test_requests_of_different_limits_have_room_for_the_deepest_draft(subject) -> None:
    llm = made(subject, noise=0.3)
    params = [
        greedy(2 + 5 * index, speculative={"num_speculative_tokens": 1 + index % 4}) for index in range(6)
    ]
    expected = [text[: p.max_tokens] for text, p in zip(subject.expected, params, strict=True)]
    assert tokens_of(llm, subject.prompts, params) == expected


def test_a_form_must_write_rows_like_the_targets(subject, monkeypatch) -> None:
    def load(self: OnTarget, target) -> None:
        self.runner = target.make_target_runner(lambda model: model.double())

    monkeypatch.setattr(OnTarget, "load", load)
    with pytest.raises(ModelError, match="the target's cache has"):
        made(subject)


def test_the_cache_of_the_target_takes_no_memory_again(subject) -> None:
    llm = made(subject)
    runner = proposer_of(llm).runner
    assert runner.cache is engine_of(llm)._scorer.cache
    assert runner.bytes_per_token == 0


@pytest.mark.parametrize("run", ["plain", "chunks", "preempted"])
def test_rows_that_are_read_are_the_targets(subject, run) -> None:
    llm = made(subject, run, name="Reading")
    assert asked_twice(llm, subject) == [subject.expected] * 2
    kept, model = proposer_of(llm).kept, copied(subject.model)
    assert len(kept) > 100
    for text, layers in kept[::7]:
        exact = DynamicCache()
        with torch.inference_mode():
            model(torch.tensor([text]), use_cache=True, **{cache_argument(model): exact})
        for layer, (keys, values) in zip(exact.layers, layers, strict=True):
            assert torch.allclose(keys, layer.keys[0].transpose(0, 1), atol=1e-4)
            assert torch.allclose(values, layer.values[0].transpose(0, 1), atol=1e-4)


def test_rows_that_are_not_the_targets_are_not_read(subject, monkeypatch) -> None:
    monkeypatch.setattr(Reading, "num_more", 1)
    with pytest.raises(PluginError, match="would read positions 0 to"):
        tokens_of(made(subject, name="Reading"), subject.prompts, greedy(32))
    llm = made(subject, name="Reading", on_proposer_error="fallback")
    assert asked_twice(llm, subject) == [subject.expected] * 2
    assert not proposer_of(llm).kept


@pytest.mark.parametrize(
    ("start", "end", "is_read"), [(0, 8, True), (3, 3, True), (-1, 4, False), (5, 4, False), (0, 9, False)]
)
def test_only_rows_of_the_request_are_read(start: int, end: int, is_read: bool) -> None:
    slots = DraftSlots()
    slots.open([16], [8], [12])
    with nullcontext() if is_read else pytest.raises(PluginError, match=f"positions {start} to {end - 1} "):
        slots.check_read(16, start, end)


def test_other_hosts_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="'on_target' needs TARGET_CACHE of the target, which other does not"
    ):
        open_proposer(on_target(), HostTarget(vocab_size=128, max_model_len=64), host="other")


def test_a_target_that_is_not_lent_is_named(subject, monkeypatch) -> None:
    load = TransformersScorer.load
    monkeypatch.setattr(
        TransformersScorer,
        "load",
        lambda self, options: replace(
            load(self, options), target_runner_factory=None, cache_reader_factory=None
        ),
    )
    for name in ("OnTarget", "Reading"):
        with pytest.raises(ConfigError, match="tensor_parallel_size"):
            made(subject, name=name)
