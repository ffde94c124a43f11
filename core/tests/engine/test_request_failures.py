"""What fails for one request (text, stops, log probabilities, output, rules) ends that request and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from speccheck.engines import engine_of, greedy, letter_tokenizer, make_llm, proposer_of, scripted, spelled
from speccheck.models import MAX_LEN, copied
from speccheck.spelling import gemma_tokenizer, ids_of, llama_tokenizer, speaker

from specdec import AsyncLLM, SamplingParams
from specdec.engine.containment.sample import contain
from specdec.engine.request import Request
from specdec.logits.rules import RequestRules

BAD = 666
"""Seed of the request that fails."""
TOKENS = 12
K = 3


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Boom:
    """Raises from the nth call on; before, it does what it replaces."""

    def __init__(self, error: BaseException, after: int, right: Callable[..., Any]) -> None:
        self._error, self._left, self._right = error, after, right

    def __call__(self, *arguments: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise self._error
        return self._right(*arguments)


class FakeGrammar:
    """Allows everything."""

    is_terminated = False

    def begin(self) -> FakeGrammar:
        return FakeGrammar()

    def mask(self, logits: torch.Tensor, nodes: Sequence[int], parents: Any) -> None:
        pass

    def allowed_nodes(self, nodes: Sequence[int], parents: Any) -> list[bool]:
        return [True] * len(nodes)

    def advance(self, token_ids: Sequence[int]) -> None:
        pass


def _grammar_of(request: Request) -> Any:
    rules = request.sequences[0].rules = RequestRules([], FakeGrammar())  # type: ignore[arg-type]
    return rules.grammar


PLACES: dict[str, tuple[dict[str, Any], Callable[[Request], tuple[Any, str]]]] = {
    "text": ({}, lambda request: (request.sequences[0].stop_checker._stream, "push")),
    "text with stops": ({"stop": "zz"}, lambda request: (request.sequences[0].stop_checker._stream, "push")),
    "stops": ({"stop": "zz"}, lambda request: (request.sequences[0].stop_checker, "accept")),
    "log probabilities": ({"logprobs": 1}, lambda request: (request.sequences[0].logprobs, "take")),
    "spelling": ({"logprobs": 1}, lambda request: (request.sequences[0].logprobs._text, "spelled")),
    "prompt": (
        {"prompt_logprobs": 1},
        lambda request: (request.sequences[0].prompt_logprobs, "add"),
    ),
    "rules": (
        {"presence_penalty": 0.5},
        lambda request: (request.sequences[0].rules._rules[0], "add_to"),
    ),
    "mask": ({}, lambda request: (_grammar_of(request), "mask")),
    "nodes": ({}, lambda request: (_grammar_of(request), "allowed_nodes")),
    "advance": ({}, lambda request: (_grammar_of(request), "advance")),
    "output": ({}, lambda request: (request, "output")),
}
ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("boom"),
    "SystemExit": lambda: SystemExit(3),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("boom", [KeyboardInterrupt()]),
    "Unprintable": Unprintable,
}


def spoil(llm: Any, place: str, error: BaseException, after: int) -> SamplingParams:
    """Make the request with seed `BAD` fail at the nth call of a place; returns its parameters."""
    keys, find = PLACES[place]
    right = llm._input_processor.prepare

    def prepare(request_id: str, prompt: Any, params: SamplingParams, **more: Any) -> Any:
        request = right(request_id, prompt, params, **more)
        if params.seed == BAD:
            owner, name = find(request)
            setattr(owner, name, Boom(error, after, getattr(owner, name)))
        return request

    llm._input_processor.prepare = prepare
    return greedy(TOKENS, seed=BAD, **keys)


def is_empty(engine: Any) -> bool:
    """Return whether an engine holds nothing of any request."""
    return (
        not engine._requests
        and not engine._owners
        and not engine._row_ids
        and not engine._ended
        and engine.kv_cache_usage == 0.0
        and engine.num_sequences == (0, 0)
    )


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("place", "after"),
    [
        (place, after)
        for place in PLACES
        for after in (0, 2)
        if not after or place not in ("prompt", "output")
    ],
)
@pytest.mark.sampled(16, slow=24)
def test_a_batch_goes_on_without_the_request_that_fails(subject, place, after, error) -> None:
    llm = make_llm(
        subject.model, scripted("Recorder", K, texts=subject.texts, wrong=0.2), tokenizer=letter_tokenizer(),
        max_num_seqs=4, max_num_batched_tokens=48,
    )  # fmt: skip
    proposer = proposer_of(llm)
    params = [greedy(TOKENS) for _ in subject.prompts]
    params[1] = spoil(llm, place, ERRORS[error](), after)
    prompts = [{"prompt_token_ids": prompt} for prompt in subject.prompts]
    for _ in range(2):  # the engine is as it was
        outputs = llm.generate(prompts, params)
        for index, (output, expected) in enumerate(zip(outputs, subject.expected, strict=True)):
            sample = output.outputs[0]
            assert output.finished
            if index == 1 and place != "nodes":  # along a draft, which is all that ends
                assert sample.finish_reason == "error"
                assert error in str(sample.stop_reason)
                assert sample.token_ids == expected[: len(sample.token_ids)]
                continue
            assert (sample.token_ids, sample.finish_reason) == (expected[:TOKENS], "length")
            assert sample.text == spelled(expected[:TOKENS])
        assert is_empty(engine_of(llm))
        assert proposer.held == {}
        assert proposer.complaints == []


@pytest.mark.parametrize("place", [place for place in PLACES if place != "nodes"])
def test_streams_of_others_go_on(subject, place) -> None:
    llm = AsyncLLM(
        copied(subject.model), speculative_config=scripted(k=K, texts=subject.texts, wrong=0.2),
        tokenizer=letter_tokenizer(), max_model_len=MAX_LEN, max_num_seqs=4,
    )  # fmt: skip
    after = 0 if place == "prompt" else 1
    bad = spoil(llm, place, KeyboardInterrupt(), after)  # a real one reaches the main thread only

    async def last_of(index: int, params: SamplingParams) -> Any:
        last = None
        async for output in llm.generate({"prompt_token_ids": subject.prompts[index]}, params):
            last = output
        return last

    async def everything() -> list[Any]:
        order = [bad if index == 1 else greedy(TOKENS) for index in range(len(subject.prompts))]
        return await asyncio.gather(*(last_of(index, params) for index, params in enumerate(order)))

    try:
        for _ in range(2):
            outputs = asyncio.run(everything())
            assert [o.outputs[0].finish_reason for o in outputs] == ["length", "error", *["length"] * 4]
            assert "KeyboardInterrupt" in outputs[1].outputs[0].stop_reason
            for index in (0, 2, 3, 4, 5):
                assert outputs[index].outputs[0].text == spelled(subject.expected[index][:TOKENS])
        assert llm.is_running
        assert is_empty(llm._built.engine)
    finally:
        llm.shutdown()


@pytest.mark.parametrize("place", ["text", "output"])
@pytest.mark.parametrize("is_streaming", [True, False])
def test_abort_never_raises(subject, place, is_streaming) -> None:
    llm = make_llm(subject.model, scripted("Recorder", K, texts=subject.texts), tokenizer=letter_tokenizer())
    engine, proposer = engine_of(llm), proposer_of(llm)
    params = spoil(llm, place, ValueError("boom"), 10**6)
    for name, given in (("bad", params), ("good", greedy(TOKENS))):
        engine.add(
            llm._input_processor.prepare(
                name, {"prompt_token_ids": subject.prompts[0]}, given, is_streaming=is_streaming
            )
        )
    engine.step()
    engine.step()
    request = engine._requests["bad"]
    owner = request.sequences[0].stop_checker._stream if place == "text" else request
    setattr(owner, {"text": "push", "output": "output"}[place], Boom(ValueError("boom"), 0, len))
    [output] = engine.abort(["bad"])
    assert output.finished
    if place == "text" and is_streaming:  # all of its text has been read
        assert output.outputs[0].finish_reason == "abort"
    else:
        assert output.outputs[0].finish_reason == "error"
        assert "ValueError: boom" in output.outputs[0].stop_reason
    last = None
    while engine.has_work:
        last = [*engine.step(), last][0]
    assert last.outputs[0].token_ids == subject.expected[0][:TOKENS]
    assert is_empty(engine)
    assert proposer.held == {}


def test_samples_that_have_not_begun_end_with_an_output_that_fails(subject) -> None:
    llm = make_llm(
        subject.model,
        scripted("Recorder", K, texts=subject.texts),
        tokenizer=letter_tokenizer(),
        max_num_seqs=2,
    )
    engine, proposer = engine_of(llm), proposer_of(llm)
    params = spoil(llm, "output", ValueError("boom"), 0).model_copy(update={"n": 4})
    engine.add(
        llm._input_processor.prepare(
            "bad", {"prompt_token_ids": subject.prompts[0]}, params, is_streaming=True
        )
    )
    outputs = []
    while engine.has_work:
        outputs += engine.step()
    [output] = outputs
    assert [sample.finish_reason for sample in output.outputs] == ["error"] * 4
    assert output.finished
    assert is_empty(engine)
    assert proposer.held == {}


@pytest.mark.parametrize("returned", ["grad", "meta", "sparse", "unprintable", "exit", "complex"])
def test_a_processor_ends_only_its_own_request(subject, returned) -> None:
    def processor(output: list[int], logits: torch.Tensor) -> Any:
        if len(output) < 2:
            return logits
        if returned == "unprintable":
            raise Unprintable
        if returned == "exit":
            raise SystemExit
        return {
            "grad": logits.clone().requires_grad_,
            "meta": lambda: logits.to("meta"),
            "sparse": logits.to_sparse,
            "complex": lambda: logits.to(torch.complex64),
        }[returned]()

    llm = make_llm(subject.model, scripted(k=K, texts=subject.texts), tokenizer=letter_tokenizer())
    params = [greedy(TOKENS) for _ in subject.prompts]
    params[1] = greedy(TOKENS, logits_processors=[processor])
    samples = [output.outputs[0] for output in llm.generate(subject.prompts, params)]
    for index in (0, 2, 3, 4, 5):
        assert samples[index].token_ids == subject.expected[index][:TOKENS]
    if returned == "grad":
        assert samples[1].token_ids == subject.expected[1][:TOKENS]
    else:
        assert samples[1].finish_reason == "error"
        assert samples[1].token_ids == subject.expected[1][:2]
    assert is_empty(engine_of(llm))


@pytest.mark.parametrize("make", [llama_tokenizer, gemma_tokenizer])
def test_allowed_bytes_that_are_no_text_cost_nobody_anything(make) -> None:
    """The report: the first byte comes after a character that the prompt ends with, or that was generated."""
    tokenizer = make()
    prompt = {"prompt_token_ids": ids_of(tokenizer, "x", b"\xc3\xa9")}
    wild = SamplingParams(
        temperature=1.0,
        max_tokens=40,
        ignore_eos=True,
        allowed_token_ids=ids_of(tokenizer, b"\xc3\xa9\xff", "x"),
        logprobs=2,
    )
    params = [
        wild.model_copy(update={"seed": seed, "stop": stop}) for seed in range(6) for stop in (None, "zz")
    ]
    llm = make_llm(speaker(tokenizer), scripted(k=K, wrong=1.0), tokenizer=tokenizer)
    for output in llm.generate([prompt] * 12, params):
        sample = output.outputs[0]
        assert (sample.finish_reason, len(sample.token_ids)) == ("length", 40)
        assert sample.text
    [first, second] = [
        [output.outputs[0].text for output in llm.generate([prompt] * 6, params[start::2])]
        for start in (0, 1)
    ]
    assert first == second
    for seed, text in enumerate(first):  # a stream says the same
        *_, last = llm.stream(prompt, params[2 * seed])
        assert last.outputs[0].text == text


def test_an_interruption_is_not_taken_for_a_failure_of_the_request() -> None:
    sequence = Mock(finish_reason=None)
    with pytest.raises(KeyboardInterrupt):
        contain(sequence, "any work", KeyboardInterrupt())
    assert sequence.finish_reason is None
    contain(sequence, "any work", SystemExit())
    assert sequence.finish_reason is not None
