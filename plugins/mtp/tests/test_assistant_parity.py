"""An assistant's drafts are those of `transformers`, from whatever the engine has of a request."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from mtp_check.assistants import VOCAB_SIZE, WINDOW, Pair, PlainAssistant, make_pair

from specdec import LLM, EngineOptions, SamplingParams
from specdec.interfaces import Draft, ProposeBatch
from specdec_plugin_mtp import MtpConfig, MtpProposer
from specdec_plugin_mtp.assistant.proposer import AssistantProposer
from specdec_runtime.loading import load_target
from specdec_testing.support.feed import Ask, Feed
from specdec_testing.support.target import CheckTarget

KINDS = [(kind, is_ordered) for kind in ("dense", "shared", "unified") for is_ordered in (False, True)]
TOLERANCE = 2e-5
RUNS: dict[str, dict[str, Any]] = {
    "preempted": {"max_num_seqs": 4, "max_model_len": 100, "num_gpu_blocks_override": 27},
    "plain": {},
    "chunks": {"max_num_batched_tokens": 11},
    "alone": {"max_num_seqs": 1},
    "eager": {"enforce_eager": True},
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    @cache
    def made(kind: str, is_ordered: bool) -> tuple[Pair, PlainAssistant]:
        pair = make_pair(kind, tmp_path_factory.mktemp(kind), is_ordered=is_ordered)
        return pair, PlainAssistant(pair)

    return made


def prompts_of(lengths: tuple[int, ...], seed: int = 4) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCAB_SIZE, (length,), generator=generator).tolist() for length in lengths]


def feed_of(pair: Pair, k: int, **keys: Any) -> Feed:
    options = EngineOptions(model=str(pair.target), dtype="float32", skip_tokenizer_init=True)
    target = CheckTarget(load_target(options))
    config = MtpConfig(num_speculative_tokens=k, model=str(pair.assistant), **keys)
    proposer = MtpProposer.fitting(config, target.handle.info)
    assert isinstance(proposer, AssistantProposer)
    proposer.load(target.handle)
    return Feed(proposer, target)


@pytest.mark.parametrize(("kind", "is_ordered"), KINDS)
def test_greedy_drafts_are_those_of_the_generator_of_candidates(pairs, kind, is_ordered):
    """It says which position and which states each token of a draft is predicted from."""
    pair, plain = pairs(kind, is_ordered)
    feed = feed_of(pair, 5, draft_sample_method="greedy")
    for number, text in enumerate(prompts_of((2, WINDOW, WINDOW + 1, WINDOW + 2, WINDOW + 3, 30))):
        feed.add(str(number), text, len(text))
        row = feed.call({str(number): Ask(len(text), cap=5)})[str(number)]
        drafted, logits = plain.drafted_by_transformers(text, 5)
        assert [*row.tokens] == drafted
        assert torch.allclose(torch.stack(plain.drafted_logits(text, drafted)), logits, atol=1e-6)


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize(("kind", "is_ordered"), KINDS)
def test_distributions_over_partly_accepted_drafts(pairs, kind, is_ordered, k):
    pair, plain = pairs(kind, is_ordered)
    feed = feed_of(pair, k, draft_sample_method="probabilistic")
    texts = prompts_of((7, 2, 21))
    for name, text in enumerate(texts):
        feed.add(str(name), text, len(text), seed=name)
    counts = [len(text) for text in texts]
    for step, accepted in enumerate([0, 1, k, 2, 0, k]):
        rows = feed.call({str(i): Ask(count, cap=k) for i, count in enumerate(counts)})
        for i, text in enumerate(texts):
            row = rows[str(i)]
            assert len(row.tokens) == k
            wanted = torch.stack(plain.drafted_logits(text, list(row.tokens))).softmax(-1)
            assert (row.probs[:k] - wanted).abs().max() < TOLERANCE
            kept = min(k, (accepted + i) % (k + 1))
            new = [*row.tokens[:kept], (11 * step + 5 * i) % VOCAB_SIZE]
            text += new
            feed.requests[str(i)].text += new
            counts[i] = len(new)


class Watched:
    """Keeps the drafts of an engine's proposer with the texts that they follow."""

    def __init__(self, llm: LLM) -> None:
        self.kept: list[tuple[list[int], list[int], torch.Tensor]] = []
        self._proposer = llm._built.engine.proposer
        self._propose = self._proposer.propose
        self._proposer.propose = self

    def __call__(self, batch: ProposeBatch) -> Draft:
        draft = self._propose(batch)
        for row, ids in enumerate(draft.token_ids.tolist()):
            tokens = [token for token in ids if token >= 0]
            if tokens:
                text = batch.token_ids(row).tolist()
                self.kept.append((text, tokens, draft.node_probs[row, : len(tokens)].clone()))
        return draft

    def check(self, plain: PlainAssistant) -> None:
        in_turn = sorted(self.kept, key=lambda kept: kept[0], reverse=True)  # whole texts first
        for text, tokens, probs in in_turn[::3]:
            wanted = torch.stack(plain.drafted_logits(text, tokens)).softmax(-1)
            assert (probs - wanted).abs().max() < TOLERANCE


@pytest.mark.parametrize(
    ("run", "kind", "is_ordered"),
    [
        pytest.param(
            run, *KINDS[(5 * place) % len(KINDS)], marks=[pytest.mark.slow] * (run in ("alone", "eager"))
        )
        for place, run in enumerate(RUNS)
    ],
)
def test_every_draft_of_an_engine(pairs, run, kind, is_ordered):
    """64 tokens behind prompts below and above the window, twice, so that prefixes are found in the cache."""
    pair, plain = pairs(kind, is_ordered)
    keys = {"model": str(pair.assistant), "num_speculative_tokens": 3, "adaptive": False}
    keys |= {"rejection_sample_method": "probabilistic", "on_proposer_error": "raise"}
    known = {"dtype": "float32", "skip_tokenizer_init": True, "block_size": 4, "strict_drafts": True}
    llm = LLM(model=str(pair.target), speculative_config=keys, **known, **RUNS[run])
    watched = Watched(llm)
    prompts = [{"prompt_token_ids": ids} for ids in prompts_of((3, 9, 30, 1))]
    params = [SamplingParams(temperature=1.0, seed=seed, max_tokens=64, ignore_eos=True) for seed in range(4)]
    for _ in range(2):
        llm.generate(prompts, params)
    assert len(watched.kept) > 200
    watched.check(plain)
    metrics = llm._built.engine.metrics
    assert (metrics.num_preemptions > 0) == (run == "preempted")
    assert 0 < metrics.num_accepted_tokens < metrics.num_draft_tokens
