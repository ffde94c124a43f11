"""Same seed, same text: at temperature 0.8, for every k, proposer, batch and order; and the reference loop's text."""

from __future__ import annotations

import pytest
from speccheck.engines import engine_of, make_llm, scripted, tokens_of
from speccheck.models import copied, tiny

from specdec import SamplingParams, reference

MAX_TOKENS = 24
KINDS = {
    "plain": {"temperature": 0.8},
    "cuts": {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
    "hot": {"temperature": 1.7},
}


def seeded(seed: int, **keys) -> SamplingParams:
    return SamplingParams(
        **{"temperature": 0.8, "max_tokens": MAX_TOKENS, "seed": seed, "ignore_eos": True} | keys
    )


@pytest.fixture(scope="module", params=KINDS)
def plain(request, subject):
    """Sampling parameters and, for each prompt and its own seed, the text without speculation, one by one."""
    params = [seeded(100 + i, **KINDS[request.param]) for i in range(len(subject.prompts))]
    llm = make_llm(subject.model, max_num_seqs=1, enable_prefix_caching=False)
    return params, [tokens_of(llm, [p], s)[0] for p, s in zip(subject.prompts, params, strict=True)]


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("shape", ["chain", "tree", "mixed"])
@pytest.mark.parametrize("wrong", [0.1, 1.0])
@pytest.mark.sampled(12, slow=20)
def test_any_proposer_and_k(subject, plain, k, shape, wrong) -> None:
    params, expected = plain
    texts = [[*p, *e] for p, e in zip(subject.prompts, expected, strict=True)]
    llm = make_llm(subject.model, scripted(k=k, shape=shape, wrong=wrong, texts=texts))
    assert tokens_of(llm, subject.prompts, params) == expected
    if wrong < 1:
        assert engine_of(llm).metrics.num_accepted_tokens > 0


@pytest.mark.parametrize("order", [[5, 4, 3, 2, 1, 0], [2, 0, 4, 1, 5, 3], [3], [1, 1, 1]])
@pytest.mark.sampled(4, slow=4)
def test_any_batch_and_order(subject, plain, order) -> None:
    params, expected = plain
    for arguments in ({}, {"max_num_seqs": 2}, {"max_num_batched_tokens": 13}, {"enforce_eager": True}):
        llm = make_llm(subject.model, **arguments)
        got = tokens_of(llm, [subject.prompts[i] for i in order], [params[i] for i in order])
        assert got == [expected[i] for i in order]


def test_greedy_and_sampled_requests_share_a_batch(subject) -> None:
    llm = make_llm(subject.model, scripted(k=5, shape="mixed", wrong=0.3, texts=subject.texts))
    params = [seeded(i, temperature=0.0 if i % 2 else 0.8) for i in range(6)]
    alone = make_llm(subject.model, max_num_seqs=1)
    expected = [tokens_of(alone, [p], s)[0] for p, s in zip(subject.prompts, params, strict=True)]
    assert tokens_of(llm, subject.prompts, params) == expected
    assert [e == s[:MAX_TOKENS] for e, s in zip(expected, subject.expected, strict=True)] == [False, True] * 3


def test_preemption_changes_no_sampled_text(subject, plain) -> None:
    params, expected = plain
    row = make_llm(subject.model)._built.scorer.runner.bytes_per_token
    llm = make_llm(
        subject.model, scripted(k=4, shape="tree", wrong=0.3), block_size=1, kv_cache_memory_bytes=170 * row
    )
    assert tokens_of(llm, subject.prompts, params) == expected
    assert engine_of(llm).metrics.num_preemptions > 0


def test_seeds_and_samples_differ(subject) -> None:
    llm = make_llm(subject.model, scripted(k=4, wrong=0.5, texts=subject.texts))
    prompt = subject.prompts[0]
    texts = {tuple(tokens_of(llm, [prompt], seeded(seed))[0]) for seed in range(8)}
    assert len(texts) == 8
    # Seeds that share their low or their high 32 bits, and negative ones, are seeds of their own.
    odd = [1, 1 + 2**32, 2**63, 2**63 + 1, -1, 2**64 - 2]
    assert len({tuple(tokens_of(llm, [prompt], seeded(seed))[0]) for seed in odd}) == len(odd)
    [output] = llm.generate([prompt], seeded(3, n=4))
    samples = [tuple(c.token_ids) for c in output.outputs]
    assert len(set(samples)) == 4
    assert samples[0] == tuple(tokens_of(llm, [prompt], seeded(3))[0])
    [again] = make_llm(subject.model).generate([prompt], seeded(3, n=4))
    assert [tuple(c.token_ids) for c in again.outputs] == samples


def test_without_a_seed_texts_are_fresh_unless_the_engine_has_one(subject) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=MAX_TOKENS)
    prompts = [subject.prompts[0]] * 4
    fresh = [tuple(t) for _ in range(2) for t in tokens_of(make_llm(subject.model), prompts, params)]
    assert len(set(fresh)) == 8
    first = tokens_of(make_llm(subject.model, seed=5), prompts, params)
    assert len({tuple(t) for t in first}) == 4
    assert tokens_of(make_llm(subject.model, seed=5), prompts, params) == first
    assert tokens_of(make_llm(subject.model, seed=6), prompts, params) != first


def right(text: list[int]) -> reference.Propose:
    return lambda tokens, count: text[len(tokens) : len(tokens) + count]


def wrong(tokens: list[int], count: int) -> list[int]:
    return [(tokens[-1] * 7 + i) % 128 for i in range(count)]


def partly(text: list[int]) -> reference.Propose:
    def propose(tokens: list[int], count: int) -> list[int]:
        draft = text[len(tokens) : len(tokens) + count]
        return [t if (len(tokens) + i) % 3 else (t + 1) % 128 for i, t in enumerate(draft)]

    return propose


def test_the_reference_loop_says_what_the_engine_says(subject, plain) -> None:
    params, expected = plain
    model = subject.model
    for index in (0, 2, 3):
        prompt, param, tokens, best = (
            subject.prompts[index],
            params[index],
            expected[index],
            subject.expected[index],
        )
        for k, propose in ((1, right([*prompt, *tokens])), (5, partly([*prompt, *tokens])), (3, wrong)):
            assert reference.generate(model, prompt, propose, k, param) == tokens
        greedy = SamplingParams(temperature=0.0, max_tokens=32)
        assert reference.generate(model, prompt, partly([*prompt, *best]), 4, greedy) == best


def test_the_reference_loop_with_a_sliding_window() -> None:
    model = tiny("mistral")
    prompt = list(range(30))
    params = seeded(4)
    llm = make_llm(copied(model))
    expected = tokens_of(llm, [prompt], params)[0]
    plain_text = reference.generate(model, prompt, lambda tokens, count: [], 1, params)
    assert plain_text == expected


def test_a_seed_of_minus_one_is_none_as_in_vllm(subject) -> None:
    assert SamplingParams(seed=-1).seed is None
    assert SamplingParams(seed=-2).seed == -2
    llm = make_llm(subject.model)
    assert len({tuple(tokens_of(llm, [subject.prompts[0]], seeded(-1))[0]) for _ in range(3)}) == 3
