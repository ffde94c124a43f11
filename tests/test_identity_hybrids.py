"""Greedy identity with `transformers` for tiny random models with recurrent or convolution layers, in float32.

Prompts in chunks; right, partly right and random drafts; n-grams; a draft model; a cache that is too small; prefixes that are
reused, also after answers; requests that are aborted in the middle of drafts.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pytest
import torch
from speccheck.engines import engine_of, greedy, make_llm, proposer_of, scripted, tokens_of
from speccheck.hybrids import HYBRIDS, REFUSED, hybrid
from speccheck.identity import assert_identical, reference, references
from speccheck.models import MAX_LEN, make, prompts, tiny
from speccheck.states import check_states

from specdec import LLM, ConfigError, ModelError, RequestOutput, SamplingParams
from specdec_runtime.interfaces import Segment
from specdec_runtime.states.checkpoints import Checkpoints, Kept, StateSpan
from specdec_runtime.states.pool import StatePool

pytestmark = pytest.mark.slow

MAX_TOKENS = 20
PROMPTS = prompts([3, 41, 1, 23, 70], seed=3)
SHARED = [[*prompts([48], seed=5)[0], *tail] for tail in prompts([5, 9, 30, 2], seed=6)]
"""Prompts that begin with the same three blocks of the prefix cache."""
DEFAULT = ("qwen3_next", "lfm2", "bamba", "zamba")
"""Gated delta rule, short convolutions, Mamba 2, and Mamba with attention that layers share."""


def chain(**keys: Any) -> dict[str, Any]:
    """Return a scripted proposer of chains."""
    return scripted(is_chain=True, **keys)


CHUNKS = {"max_num_batched_tokens": 19, "enable_prefix_caching": False}
SMALL = {"num_gpu_blocks_override": 11, "max_num_batched_tokens": 24}
"""A cache for little more than one request; requests are admitted before they have room."""
DRAFTS = {
    "chain-1": chain(k=1, wrong=0.3),
    "chain-4": chain(k=4, wrong=0.2),
    "chain-8-right": chain(k=8),
    "chain-8-random": chain(k=8, wrong=1.0),
}


class Subject:
    """A tiny model and what `transformers` makes of the prompts."""

    def __init__(self, name: str) -> None:
        self.model = hybrid(name)
        self.expected = references(self.model, PROMPTS, MAX_TOKENS)

    @cached_property
    def shared(self) -> list[list[int]]:
        return references(self.model, SHARED, MAX_TOKENS)

    def drafts(self, wrong: float) -> dict[str, Any]:
        """Return a proposer that knows all texts."""
        return self.knowing(chain(k=5, wrong=wrong, adaptive=False))

    def knowing(self, speculation: dict[str, Any]) -> dict[str, Any]:
        known = zip([*PROMPTS, *SHARED], [*self.expected, *self.shared], strict=True)
        return speculation | {"texts": [[*prompt, *answer] for prompt, answer in known]}

    def check(self, llm: LLM, given: list[list[int]], expected: list[list[int]]) -> None:
        got = tokens_of(llm, given, greedy(MAX_TOKENS))
        assert_identical(self.model, given, expected, got)
        metrics = engine_of(llm).metrics
        assert metrics.proposer_errors == metrics.proposer_nodes_cut == 0


def check_drafts(subject: Subject, draft: str) -> None:
    subject.check(make_llm(subject.model, **CHUNKS), PROMPTS, subject.expected)
    for label, speculation in DRAFTS.items():
        llm = make_llm(subject.model, subject.knowing(speculation), **(CHUNKS if "8" in label else {}))
        subject.check(llm, PROMPTS, subject.expected)
        metrics = engine_of(llm).metrics
        if label == "chain-8-right":
            assert metrics.num_accepted_tokens == metrics.num_draft_tokens > 0.7 * len(PROMPTS) * MAX_TOKENS
        elif label != "chain-8-random":
            assert 0 < metrics.num_accepted_tokens < metrics.num_draft_tokens
    ngrams = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
    for speculation in (ngrams, {"method": "draft_model", "model": draft, "num_speculative_tokens": 3}):
        llm = make_llm(subject.model, speculation)
        subject.check(llm, PROMPTS, subject.expected)
        assert engine_of(llm).metrics.num_draft_tokens


def check_prefixes(subject: Subject, draft: str) -> None:
    """The second time the shared blocks are known; then each text goes on behind its answer."""
    for speculation in (None, subject.drafts(0.2)):
        llm = make_llm(subject.model, speculation)
        for _ in range(3):
            subject.check(llm, SHARED, subject.shared)
        again = llm.generate(SHARED, greedy(1))
        assert all(output.num_cached_tokens >= 48 for output in again)
        turns = [[*prompt, *answer, 7, 9] for prompt, answer in zip(SHARED, subject.shared, strict=True)]
        subject.check(llm, turns, references(subject.model, turns, MAX_TOKENS))
        longer = llm.generate(turns, greedy(1))
        lengths = [(len(turn) - 1) // 16 * 16 for turn in turns]
        assert [output.num_cached_tokens for output in longer] == lengths


def check_preemption(subject: Subject, draft: str) -> None:
    """Requests are preempted in the middle of drafts, and cached prefixes are overwritten."""
    for prefixes in (False, True):
        llm = make_llm(subject.model, subject.drafts(0.2), **SMALL, enable_prefix_caching=prefixes)
        for _ in range(2):
            subject.check(llm, PROMPTS + SHARED, subject.expected + subject.shared)
        assert engine_of(llm).metrics.num_preemptions > 0


def check_aborts(subject: Subject, draft: str) -> None:
    """Aborted requests leave nothing behind: others, and those that come after them, are right."""
    llm = make_llm(subject.model, subject.drafts(0.3), max_num_seqs=3)
    engine = engine_of(llm)
    for round_ in range(4):
        for index, prompt in enumerate(SHARED):
            given = {"prompt_token_ids": prompt}
            request = llm._input_processor.prepare(
                f"{round_}-{index}", given, greedy(MAX_TOKENS), is_streaming=False
            )
            engine.add(request)
        for _ in range(3 + 2 * round_):
            engine.step()
        assert engine.metrics.num_draft_tokens
        engine.abort([f"{round_}-{index}" for index in range(len(SHARED))])
        assert not engine.has_work
        subject.check(llm, SHARED, subject.shared)
    subject.check(llm, PROMPTS, subject.expected)


CHECKS = (check_drafts, check_prefixes, check_preemption, check_aborts)


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A draft model, whose layers all attend."""
    path = tmp_path_factory.mktemp("draft")
    tiny("llama").save_pretrained(path)
    return str(path)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", DEFAULT)
@pytest.mark.sampled(0, slow=6)
def test_text_is_that_of_transformers(name, check, draft) -> None:
    check(Subject(name), draft)


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(set(HYBRIDS) - set(DEFAULT)))
def test_text_is_that_of_transformers_for_more_models(name, draft) -> None:
    subject = Subject(name)
    for check in CHECKS:
        check(subject, draft)


@pytest.mark.parametrize("name", REFUSED)
def test_states_that_cannot_be_found(name) -> None:
    with pytest.raises(ModelError, match=r"otherwise than in the cache|keep their states in the modules"):
        make_llm(hybrid(name))


def test_trees_are_refused() -> None:
    config = {"method": "suffix", "use_tree_spec": True, "num_speculative_tokens": 4}
    with pytest.raises(ConfigError, match="follow one path: configure the method for chains"):
        make_llm(hybrid("qwen3_next"), config)


def test_drafts_on_the_targets_cache_are_refused() -> None:
    with pytest.raises(ConfigError, match="would change the recurrent states"):
        make_llm(hybrid("qwen3_next"), {"method": "self", "num_speculative_tokens": 2})


@pytest.mark.parametrize("name", ["lfm2", "qwen3_5", pytest.param("zamba", marks=pytest.mark.full)])
def test_as_a_draft_model(name, tmp_path) -> None:
    """Every draft is what the draft model continues the text with, whatever was rejected before; of itself, all is accepted."""
    drafting = hybrid(name)
    drafting.save_pretrained(tmp_path)
    config = {"method": "draft_model", "model": str(tmp_path), "num_speculative_tokens": 4, "adaptive": False}
    config |= {"draft_sample_method": "greedy", "on_proposer_error": "raise"}
    params = greedy(MAX_TOKENS, return_draft_steps=True)
    for target, arguments in (
        (drafting, {}),
        (tiny("llama"), {"max_num_batched_tokens": 24, "max_num_seqs": 3}),
    ):
        expected = references(target, PROMPTS, MAX_TOKENS)
        llm = make_llm(target, config, **arguments)
        for _ in range(2):
            outputs = [output.outputs[0] for output in llm.generate(PROMPTS, params)]
            assert [output.token_ids for output in outputs] == expected
        num_drafted = 0
        for prompt, output in zip(PROMPTS, outputs, strict=True):
            text, at = [*prompt, *output.token_ids], len(prompt)
            for step in output.draft_steps or ():
                wanted = reference(drafting, text[:at], len(step.token_ids)) if step.token_ids else []
                assert step.token_ids == wanted
                num_drafted += len(wanted)
                at += step.num_emitted
        assert num_drafted > MAX_TOKENS
        metrics = engine_of(llm).metrics
        if target is drafting:
            assert metrics.num_accepted_tokens == metrics.num_draft_tokens
        else:
            assert metrics.num_accepted_tokens < metrics.num_draft_tokens / 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({"deterministic": True}, "leave deterministic out"), ({"max_model_len": 6}, None)],
)
def test_arguments(arguments, reason) -> None:
    """`deterministic` is refused; a context too short for the check at load is served."""
    model = hybrid("qwen3_5")
    if reason is not None:
        with pytest.raises(ModelError, match=reason):
            make_llm(model, **arguments)
        return
    assert tokens_of(make_llm(model, **arguments), [[3, 1, 4]], greedy(3)) == [reference(model, [3, 1, 4], 3)]


@pytest.mark.parametrize("name", ["lfm2", "bamba"])
def test_hidden_states_are_those_of_the_model(name) -> None:
    """The proposer holds cached prefixes; the target runs their last rows again, from the last state that is kept."""
    model = hybrid(name)
    expected = references(model, SHARED, MAX_TOKENS)
    texts = [[*prompt, *answer] for prompt, answer in zip(SHARED, expected, strict=True)]
    config = chain(k=4, wrong=0.3, texts=texts) | {"method": "speccheck.resuming.Resuming"}
    llm = make_llm(model, config, max_num_batched_tokens=40)
    proposer = proposer_of(llm)
    for _ in range(3):
        outputs = llm.generate(SHARED, greedy(MAX_TOKENS))
        for output, text in zip(outputs, texts, strict=True):
            assert output.outputs[0].token_ids == text[len(output.prompt_token_ids) :]
            check_states(model, proposer, output.request_id, text)
    assert all(
        held and output.num_cached_tokens
        for (_, _, held), output in zip(proposer.asked[-4:], outputs, strict=True)
    )
    assert not proposer.complaints


def test_text_without_a_prefix_is_as_reference() -> None:
    """A prompt of one token, drafted from its first step."""
    model = hybrid("lfm2")
    expected = reference(model, [5], MAX_TOKENS)
    texts = [[5, *expected]]
    llm = make_llm(model, chain(k=4, wrong=0.4, texts=texts))
    assert tokens_of(llm, [[5]], greedy(MAX_TOKENS)) == [expected]


@pytest.mark.parametrize(
    ("name", "is_one_by_one"), [("nemotron_h", False), ("jamba", True), ("qwen3_5", False)]
)
def test_how_layers_continue_is_found_in_16_bits(name, is_one_by_one) -> None:
    """The logits of some models are wider than their weights."""
    model = make(HYBRIDS[name](), seed=2, dtype=torch.bfloat16)
    llm = make_llm(model, {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1})
    states = llm._built.scorer.runner.states  # type: ignore[attr-defined]  # the default scorer
    assert states.continues_one_by_one == is_one_by_one
    tokens_of(llm, PROMPTS, greedy(MAX_TOKENS))
    assert engine_of(llm).metrics.num_draft_tokens


@pytest.mark.parametrize("name", ["lfm2", "qwen3_next"])
def test_a_state_that_is_not_restored_gives_other_texts(name, monkeypatch) -> None:
    """The mutant of the tests above: after a draft, a request goes on from the state after all of its nodes. The check of
    each model at load finds it too, so that the engine is made before."""
    subject = Subject(name)
    drafting = make_llm(subject.model, subject.drafts(0.3))

    def unrestored(self: Checkpoints, start: int, segment: Segment, kept: Kept) -> list[StateSpan]:
        place = kept.states[max(kept.states)] if start else None
        kept.states, kept.num_inputs = {start: place}, 0
        return []

    monkeypatch.setattr(Checkpoints, "_return_to", unrestored)
    with pytest.raises(ModelError, match="continues from a state otherwise than in one pass"):
        make_llm(subject.model)
    assert tokens_of(drafting, PROMPTS, greedy(MAX_TOKENS)) != subject.expected


def test_states_that_are_lost_are_found_at_load(monkeypatch) -> None:
    read = StatePool.read
    monkeypatch.setattr(StatePool, "read", lambda *arguments: torch.zeros_like(read(*arguments)))
    with pytest.raises(ModelError, match="continues from a state otherwise than in one pass"):
        make_llm(hybrid("bamba"))


def test_the_model_still_serves_its_owner() -> None:
    """`generate` of a model that an engine runs, and one more engine over it."""
    model = hybrid("zamba2")
    expected = references(model, PROMPTS[:2], MAX_TOKENS)
    for _ in range(2):
        llm = LLM(model, skip_tokenizer_init=True, max_model_len=MAX_LEN, max_num_seqs=2)
        assert tokens_of(llm, PROMPTS[:2], greedy(MAX_TOKENS)) == expected
        assert references(model, PROMPTS[:2], MAX_TOKENS) == expected


def test_fewer_requests_run_where_memory_has_no_room_for_their_states(caplog) -> None:
    model = hybrid("qwen3_5")
    states = make_llm(model)._built.scorer.states
    size = states.bytes_per_request(is_prefix_cached=True)  # type: ignore[union-attr]
    given = [prompt[:20] for prompt in PROMPTS]
    expected = references(model, given, MAX_TOKENS)
    llm = make_llm(model, kv_cache_memory_bytes=5 * size, max_model_len=48)
    assert llm._built.scorer.states.max_requests == 2  # type: ignore[union-attr]
    assert "room for the recurrent states of 2 requests" in caplog.text
    assert tokens_of(llm, given, greedy(MAX_TOKENS)) == expected


@pytest.mark.parametrize("name", ["qwen3_next", "jamba"])
def test_samples_do_not_depend_on_drafts(name) -> None:
    """Several samples share a prompt, are preempted, and have log probabilities of the prompt, which skip cached prefixes."""
    model, given = hybrid(name), prompts([30, 40, 1], seed=9)
    params = [
        SamplingParams(
            temperature=0.8, seed=seed, n=3, max_tokens=MAX_TOKENS, ignore_eos=True, prompt_logprobs=1
        )
        for seed in range(3)
    ]
    plain = make_llm(model).generate(given, params)
    texts = [[*prompt, *output.outputs[0].token_ids] for prompt, output in zip(given, plain, strict=True)]
    speculation = chain(k=4, wrong=0.3, texts=texts, adaptive=False)
    llm = make_llm(model, speculation, **SMALL | {"max_num_batched_tokens": 19}, max_num_seqs=3)
    drafted = llm.generate(given, params)
    assert engine_of(llm).metrics.num_preemptions
    assert engine_of(llm).metrics.num_accepted_tokens
    for one, other in zip(plain, drafted, strict=True):
        assert [o.token_ids for o in one.outputs] == [o.token_ids for o in other.outputs]
        assert logprobs(one) == pytest.approx(logprobs(other), abs=1e-3)


def logprobs(output: RequestOutput) -> list[float]:
    """Return those of a prompt."""
    assert output.prompt_logprobs is not None
    return [entry.logprob for row in output.prompt_logprobs if row for entry in row.values()]
