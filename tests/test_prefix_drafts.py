"""Cached prefixes with every kind of proposer: the same text, and the same drafts, as where nothing is cached."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
from speccheck.own_vocabulary import own_vocabulary_draft

import specdec_zoo
from specdec import LLM, EngineOptions, RequestOutput, SamplingParams
from specdec.interfaces import Draft, ProposeBatch
from specdec_plugin_mlp import MLPSpeculator, MLPSpeculatorLayout, save_mlp_speculator
from specdec_runtime.loading.target import LoadedTarget, load_target
from specdec_testing.support.rows import rows_of

pytestmark = pytest.mark.slow

BLOCK = 8
ROOM = {"max_model_len": 160, "block_size": BLOCK, "max_num_batched_tokens": 96}
SMALL = {"num_gpu_blocks_override": 30, "max_num_seqs": 5}
"""A cache of 240 tokens: not all requests fit, and nothing stays for long."""
METHODS: dict[str, dict[str, Any]] = {
    "ngram": {"method": "ngram"},
    "draft_model": {"method": "draft_model", "model": "zoo"},
    "own vocabulary": {
        "method": "draft_model",
        "model": own_vocabulary_draft(),
        "use_heterogeneous_vocab": True,
    },
    "eagle": {"method": "eagle", "model": "zoo"},
    "eagle3": {"method": "eagle3", "model": "zoo"},
    "eagle3 tree": {"method": "eagle3", "model": "zoo", "tree_top_k": 3, "num_speculative_tokens": 6},
    "mlp": {"method": "mlp"},
    "mtp": {"method": "mtp", "model": "zoo"},
}


@dataclass
class Watch:
    """An engine, and what its proposer drafted after which text; of greedy requests."""

    llm: LLM
    drafts: dict[tuple[int, ...], list[int]] = field(default_factory=dict)
    differing: list[tuple[int, ...]] = field(default_factory=list)
    """Texts after which it has drafted this and that."""
    num_delivered: int = 0
    """Tokens delivered."""

    def __post_init__(self) -> None:
        guard = self.llm._built.engine._speculation._guard
        assert guard is not None
        inner = guard.proposer.propose

        def propose(batch: ProposeBatch) -> Draft:
            draft = inner(batch)
            self.num_delivered += sum(batch.counts)
            for index, row in enumerate(rows_of(draft, batch.batch_size)):
                if row.tokens and batch.sampling_params[index].is_greedy:
                    text = tuple(batch.token_ids(index).tolist())
                    if not agree(self.drafts.setdefault(text, row.tokens), row.tokens):
                        self.differing.append(text)
            return draft

        guard.proposer.propose = propose  # type: ignore[method-assign]  # a watch

    def ask(self, prompts: list[list[int]], **keys: Any) -> list[RequestOutput]:
        return self.llm.generate(prompts, params(**keys))


def agree(first: list[int], second: list[int]) -> bool:
    """Whether two drafts are the same, as far as both go: the budget of a step may cut one short."""
    return all(a == b for a, b in zip(first, second, strict=False))


def params(**keys: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0.0, "max_tokens": 24, "ignore_eos": True} | keys)


def texts(outputs: list[RequestOutput]) -> list[list[int]]:
    return [sample.token_ids for output in outputs for sample in output.outputs]


@cache
def target() -> LoadedTarget:
    return load_target(EngineOptions(model="zoo", dtype="float32"))


@cache
def prompts() -> list[list[int]]:
    """Texts that begin alike: whole, cut off within a block, at its end, and going on differently."""
    tokenizer = target().tokenizer
    assert tokenizer is not None
    asked = [tokenizer(prompt["prompt"])["input_ids"] for prompt in specdec_zoo.prompts(4)]
    long, other = (asked[0] + asked[1])[:100], (asked[2] + asked[3])[:90]
    return [long, long[:61], long[:64] + other[:20], long[:65], other, other[:40] + long[:50], long[:7]]


def make(method: str, **arguments: Any) -> Watch:
    keys = {"num_speculative_tokens": 3, "on_proposer_error": "raise", "adaptive": False, **METHODS[method]}
    if method != "ngram":
        keys["draft_sample_method"] = "greedy"
    return Watch(LLM(target(), speculative_config=keys, strict_drafts=True, **ROOM | arguments))


@pytest.fixture(scope="module", autouse=True)
def untrained_heads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give `mlp` heads of random weights: the zoo has none."""
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("heads")
    save_mlp_speculator(
        MLPSpeculator(MLPSpeculatorLayout(vocab_size=4096, emb_dim=256, inner_dim=24, n_predict=3)), folder
    )
    METHODS["mlp"]["model"] = str(folder)


@pytest.mark.filterwarnings("ignore:.*lowers acceptance")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.sampled(0, slow=4)
def test_text_and_drafts_are_those_of_an_engine_that_caches_nothing(method: str) -> None:
    plain = make(method, enable_prefix_caching=False)
    sampled = {"temperature": 0.8, "seed": 3, "n": 3}
    expected, expected_samples = texts(plain.ask(prompts())), texts(plain.ask(prompts()[:1], **sampled))
    cached = make(method, **SMALL)
    for prompt in prompts():  # each finds what it shares with those before it
        stream = cached.llm.stream(prompt, params())
        for _ in range(3):
            next(stream)
        stream.close()
        assert texts(cached.ask([prompt])) == [expected[prompts().index(prompt)]]
    assert texts(cached.ask(prompts()[:1], **sampled)) == expected_samples
    metrics = cached.llm._built.engine.metrics
    for _ in range(2):  # all of them at once: some give way to others and come back
        assert texts(cached.ask(prompts())) == expected
    assert metrics.num_preemptions > 0
    assert metrics.proposer_errors == 0
    assert metrics.num_accepted_tokens > 50 or method in ("ngram", "mlp")
    both = cached.drafts.keys() & plain.drafts.keys()
    assert len(both) > (30 if method != "ngram" else 5)
    assert [text for text in both if not agree(cached.drafts[text], plain.drafts[text])] == []
    assert cached.differing == plain.differing == []
    scheduler = cached.llm._built.engine._scheduler
    assert scheduler._kv.pool.num_free_slots == scheduler._kv.pool.num_slots


@pytest.mark.parametrize("method", [method for method in METHODS if method not in ("eagle", "eagle3 tree")])
def test_what_was_asked_before_is_found(method: str) -> None:
    watch = make(method, max_num_batched_tokens=128)
    long = prompts()[0]
    first = watch.ask([long], max_tokens=8)[0]
    first_delivered = watch.num_delivered
    second = watch.ask([long], max_tokens=8)[0]
    second_delivered = watch.num_delivered - first_delivered
    assert texts([first]) == texts([second])
    assert first.num_cached_tokens == 0
    assert second.num_cached_tokens == 96 == (len(long) - 1) // BLOCK * BLOCK
    assert second.metrics.accepted_per_position == first.metrics.accepted_per_position
    assert second.metrics.num_draft_tokens == first.metrics.num_draft_tokens > 0 or method == "ngram"
    # ngram's tables are of one request; the others hold rows, and of other vocabularies no token that ends within a block.
    least, most = {"ngram": (0, 0), "own vocabulary": (60, 96)}.get(method, (96, 96))
    assert least <= first_delivered - second_delivered <= most
    assert watch.llm._built.engine.metrics.prefix_tokens_rerun == 0
