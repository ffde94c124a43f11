"""Every sampling parameter with speculation on: the same tokens as without, as `transformers`, and as the reference loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from speccheck.engines import engine_of, letter_tokenizer, make_llm, scripted, spelled, tokens_of

from specdec import SamplingParams, reference
from specdec.logits.rules import rules_of

MAX_TOKENS = 24


def every_third(output: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Forbids a third of the ids, another one at each length, and the last token."""
    logits[len(output) % 3 :: 3] -= 4.0
    if output:
        logits[output[-1]] = -torch.inf
    return logits


PARAMETERS: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.4},
    "presence and frequency": {"presence_penalty": 1.1, "frequency_penalty": 0.6},
    "bias": {"logit_bias": {i: (3.0 if i % 2 else -2.0) for i in range(128)}},
    "minimum": {"min_tokens": 9, "ignore_eos": False, "stop_token_ids": list(range(0, 128, 3))},
    "allowed": {"allowed_token_ids": list(range(5, 60))},
    "processors": {"logits_processors": [every_third]},
    "min-p": {"min_p": 0.3},
    "together": {
        "repetition_penalty": 1.2, "frequency_penalty": 0.5, "logit_bias": {7: 4.0}, "min_tokens": 5,
        "allowed_token_ids": list(range(100)), "logits_processors": [every_third], "top_p": 0.9, "top_k": 30,
    },
}  # fmt: skip
TEMPERATURES = [0.0, 0.8]
PROPOSERS = [
    scripted(k=1, wrong=0.2),
    scripted(k=8, wrong=0.1),
    scripted(k=8, shape="tree", wrong=0.3),
    scripted(k=4, shape="mixed", wrong=1.0),
]


def params_for(name: str, temperature: float, count: int) -> list[SamplingParams]:
    keys = {"temperature": temperature, "max_tokens": MAX_TOKENS, "ignore_eos": True} | PARAMETERS[name]
    return [SamplingParams(seed=40 + i, **keys) for i in range(count)]


@pytest.fixture(scope="module", params=[(name, t) for name in PARAMETERS for t in TEMPERATURES], ids=str)
def case(request, subject):
    """Parameters and, for each prompt, the text without speculation, one by one."""
    params = params_for(*request.param, len(subject.prompts))
    llm = make_llm(subject.model, max_num_seqs=1, enable_prefix_caching=False)
    return params, [tokens_of(llm, [p], s)[0] for p, s in zip(subject.prompts, params, strict=True)]


@pytest.mark.parametrize("proposer", PROPOSERS, ids=["1", "8", "tree-8", "wrong"])
@pytest.mark.sampled(16, slow=16)
def test_speculation_changes_no_token(subject, case, proposer) -> None:
    params, expected = case
    texts = [[*p, *e] for p, e in zip(subject.prompts, expected, strict=True)]
    llm = make_llm(subject.model, proposer | {"texts": texts}, max_num_batched_tokens=48)
    assert tokens_of(llm, subject.prompts, params) == expected
    if proposer["wrong"] < 1.0:
        assert engine_of(llm).metrics.num_accepted_tokens > 0


def test_the_reference_loop_says_the_same(subject, case) -> None:
    params, expected = case
    llm = make_llm(subject.model)
    for index in (0, 2):
        ends = llm._input_processor._end_ids(params[index])
        rules = rules_of(params[index], None, None, ends)
        prompt, want = subject.prompts[index], expected[index]
        got = reference.generate(
            subject.model,
            prompt,
            lambda tokens, count: [(tokens[-1] * 5) % 128] * count,
            2,
            params[index],
            rules,
        )
        assert got[: len(want)] == want


def test_the_parameters_change_something(subject, case) -> None:
    params, expected = case
    plain = [
        SamplingParams(temperature=p.temperature, max_tokens=MAX_TOKENS, seed=p.seed, ignore_eos=True)
        for p in params
    ]
    if params[0].min_p == 0.0 or params[0].temperature > 0:
        assert tokens_of(make_llm(subject.model), subject.prompts, plain) != expected


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"repetition_penalty": 1.4}, {"repetition_penalty": 1.4}),
        ({"bad_words": [spelled([35]), spelled([88, 22])]}, {"bad_words_ids": [[35], [88, 22]]}),
        ({"logit_bias": {9: 6.0, 4: -3.0}}, {"sequence_bias": [[[9], 6.0], [[4], -3.0]]}),
        ({"min_tokens": 12, "stop_token_ids": [2]}, {"min_new_tokens": 12, "eos_token_id": 2}),
    ],
    ids=["repetition", "bad words", "bias", "minimum"],
)
def test_transformers_says_the_same(subject, ours, theirs) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, **ours)
    proposer = scripted(k=4, wrong=0.3, texts=subject.texts)
    llm = make_llm(subject.model, proposer, tokenizer=letter_tokenizer())
    got = tokens_of(llm, subject.prompts, params)
    assert got != [tokens[:MAX_TOKENS] for tokens in subject.expected]
    for prompt, tokens in zip(subject.prompts, got, strict=True):
        settings = {"eos_token_id": subject.model.generation_config.eos_token_id} | theirs
        out = subject.model.generate(
            torch.tensor([prompt]), max_new_tokens=MAX_TOKENS, do_sample=False, pad_token_id=0, **settings
        )
        assert out[0, len(prompt) :].tolist() == tokens


@pytest.mark.parametrize("allowed", [[9], [9, 9, 9]])
def test_a_request_without_a_choice_ends_alone(subject, allowed) -> None:
    llm = make_llm(subject.model, scripted(k=4, texts=subject.texts))
    hopeless = SamplingParams(
        temperature=0.0, allowed_token_ids=allowed, stop_token_ids=[9], min_tokens=3, max_tokens=8
    )

    def fails_late(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        if len(output) > 6:
            raise RuntimeError("seven is enough")
        return logits

    late = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True, logits_processors=[fails_late])
    plain = SamplingParams(temperature=0.0, max_tokens=32)
    outputs = llm.generate(subject.prompts[:3], [hopeless, late, plain])
    assert [o.outputs[0].finish_reason for o in outputs] == ["error", "error", "length"]
    assert outputs[0].outputs[0].token_ids == []
    assert "exclude each other" in str(outputs[0].outputs[0].stop_reason)
    assert outputs[1].outputs[0].token_ids == subject.expected[1][: len(outputs[1].outputs[0].token_ids)]
    assert "seven is enough" in str(outputs[1].outputs[0].stop_reason)
    assert outputs[2].outputs[0].token_ids == subject.expected[2]
    assert not llm._built.engine.has_work
