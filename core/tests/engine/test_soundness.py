"""Logits that are not numbers end the request they belong to, and no other."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from speccheck.engines import engine_of, greedy, make_llm, scripted, tokens_of

from specdec import SamplingParams

SAMPLED = SamplingParams(temperature=0.8, seed=7, max_tokens=20, ignore_eos=True)
PARAMS = {
    "greedy": greedy(20),
    "sampled": SAMPLED,
    "cut": SAMPLED.model_copy(update={"top_k": 5, "top_p": 0.9}),
    "biased": SAMPLED.model_copy(update={"logit_bias": {3: 1.0}}),
}


def poison(llm, length: int, value: float, whole: bool) -> None:
    """Spoil the logits that follow the prompt of that length and its first seven tokens."""
    runner = engine_of(llm)._scorer.runner
    engine, plain = engine_of(llm), runner.forward
    current = []
    score = engine._scorer.score

    def spoiled_score(step):
        current[:] = step.sampled
        return score(step)

    def spoiled_forward(batch):
        output = plain(batch)
        logits, row = output.logits.clone(), 0
        for each in current:
            sequence = each.sequence
            rows = range(row, row + each.num_nodes + 1)
            row += len(rows)
            for place in rows:
                if sequence.num_prompt_tokens == length and sequence.num_output_tokens + place - rows[0] >= 7:
                    logits[place, slice(None) if whole else 5] = value
        return replace(output, logits=logits)

    engine._scorer.score = spoiled_score
    runner.forward = spoiled_forward


@pytest.mark.parametrize("kind", PARAMS)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("speculation", [None, "strict", "probabilistic", "typical"])
@pytest.mark.sampled(8, slow=12)
def test_only_the_request_whose_logits_are_not_numbers_ends(subject, kind, whole, speculation) -> None:
    config = None
    if speculation is not None:
        config = scripted(k=3, texts=subject.texts, wrong=0.3, rejection_sample_method=speculation)
    expected = tokens_of(make_llm(subject.model, config), subject.prompts, PARAMS[kind])
    llm = make_llm(subject.model, config)
    poison(llm, len(subject.prompts[1]), float("nan"), whole)
    outputs = [output.outputs[0] for output in llm.generate(subject.prompts, PARAMS[kind])]
    assert outputs[1].finish_reason == "error"
    assert outputs[1].stop_reason == "the logits are not numbers"
    assert len(outputs[1].token_ids) == 7
    if speculation in (None, "strict"):
        assert outputs[1].token_ids == expected[1][:7]
    for index in (0, 2, 3, 4, 5):
        assert outputs[index].finish_reason == "length"
        if kind == "greedy" or speculation in (None, "strict"):
            assert outputs[index].token_ids == expected[index]


def test_a_best_logit_of_infinity_is_taken(subject) -> None:
    llm = make_llm(subject.model)
    poison(llm, len(subject.prompts[1]), float("inf"), whole=False)
    [output] = llm.generate([subject.prompts[1]], greedy(10))
    assert output.outputs[0].token_ids == [*subject.expected[1][:7], 5, 5, 5]


@pytest.mark.parametrize("sampler", ["strict", "probabilistic"])
def test_an_error_of_a_processor_on_a_path_that_is_not_taken_ends_nothing(subject, sampler) -> None:
    plain = tokens_of(make_llm(subject.model), subject.prompts, SAMPLED)
    usual = {token for tokens in plain for token in tokens}

    def picky(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        if not set(output) <= usual:
            raise KeyError("a token that was never written")
        mask = torch.full_like(logits, -torch.inf)
        mask[sorted(usual)] = 0.0
        return logits + mask

    params = SAMPLED.model_copy(update={"logits_processors": [picky]})
    expected = tokens_of(make_llm(subject.model), subject.prompts, params)
    llm = make_llm(subject.model, scripted(k=3, wrong=1.0, rejection_sample_method=sampler))
    outputs = llm.generate(subject.prompts, params)
    assert {output.outputs[0].finish_reason for output in outputs} == {"length"}
    if sampler == "strict":
        assert [output.outputs[0].token_ids for output in outputs] == expected


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
@pytest.mark.parametrize("options", [{}, {"enforce_eager": True}, {"dtype": "bfloat16"}], ids=str)
def test_a_drafted_token_that_overflows_costs_only_drafts(subject, kind, options, caplog) -> None:
    """A NaN of a drafted token reaches all rows of its pass: 0 times NaN is NaN."""
    model = copy.deepcopy(subject.model).to(getattr(torch, options.get("dtype", "float32")))
    dead = next(t for t in range(3, 50) if not any(t in text for text in subject.texts))
    params = PARAMS[kind].model_copy(update={"logit_bias": {dead: -100.0}})
    plain = make_llm(model, **options)
    expected = tokens_of(plain, subject.prompts, params)
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.set_output_embeddings(copy.deepcopy(model.get_output_embeddings()))
        model.config.tie_word_embeddings = False
        model.get_input_embeddings().weight[dead] = float("nan")
    texts = [
        [*prompt, *tokens[: 5 * (index % 2)], *[dead] * 20]
        for index, (prompt, tokens) in enumerate(zip(subject.prompts, expected, strict=True))
    ]
    llm = make_llm(model, scripted(k=3, texts=texts), **options)
    outputs = llm.generate(subject.prompts, params)
    # A step that is repeated emits nothing: it is no time between two tokens.
    times = sum(engine_of(llm).metrics.inter_token_latency.counts)
    assert times == sum(19 - output.metrics.num_accepted_tokens for output in outputs)
    for output, tokens in zip(outputs, expected, strict=True):
        assert output.outputs[0].finish_reason == "length"
        assert output.outputs[0].token_ids == tokens
        assert output.metrics.num_accepted_tokens < 6
    assert "is left without drafts: with drafted tokens in the pass" in caplog.text
    again = params.model_copy(update={"speculative": False})
    assert tokens_of(llm, subject.prompts, again) == expected  # nothing of it is left in the prefix cache
