"""Log probabilities: those of the target as it is, with and without speculation, whatever the sampling parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from speccheck.engines import engine_of, letter_tokenizer, make_llm, scripted, spelled
from speccheck.spelling import TOKENIZERS, ids_of, saying, speaker

from specdec import ConfigError, SamplingParams
from specdec.logits.logprobs import LogprobRecord

MAX_TOKENS = 20


def outputs_of(llm, prompts, **keys: Any):
    params = [
        SamplingParams(**{"temperature": 0.8, "seed": i, "max_tokens": MAX_TOKENS, "ignore_eos": True} | keys)
        for i in range(len(prompts))
    ]
    return llm.generate(prompts, params)


@torch.inference_mode()
def exact(model, tokens: list[int]) -> torch.Tensor:
    """Log probabilities `[T - 1, V]` of the tokens after the first, by one plain forward pass."""
    return torch.log_softmax(model(torch.tensor([tokens]), use_cache=False).logits[0, :-1].float(), -1)


def check(entries, law: torch.Tensor, tokens: list[int], count: int) -> None:
    """Compare entries with the rows of `law`."""
    assert len(entries) == len(tokens) == len(law)
    for entry, row, token in zip(entries, law, tokens, strict=True):
        assert next(iter(entry)) == token
        assert {*entry} == {token, *row.topk(count).indices.tolist()}
        for other, got in entry.items():
            assert got.logprob == pytest.approx(row[other].item(), abs=2e-4)
            assert got.rank == int((row > row[other]).sum()) + 1


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_of_all_ids_behind_accepted_tokens(subject, shape) -> None:
    llm = make_llm(subject.model, scripted(k=6, shape=shape, texts=subject.texts))
    [output] = outputs_of(llm, subject.prompts[:1], temperature=0.0, logprobs=-1)
    assert output.metrics.num_accepted_tokens > 0
    tokens = [*subject.prompts[0], *output.outputs[0].token_ids]
    law = exact(subject.model, tokens)[-MAX_TOKENS:]
    check(output.outputs[0].logprobs, law, output.outputs[0].token_ids, law.shape[1])


PROPOSERS = [None, scripted(k=6, wrong=0.2), scripted(k=8, shape="tree", wrong=0.3)]


@pytest.mark.parametrize("proposer", PROPOSERS, ids=["none", "chain", "tree"])
@pytest.mark.parametrize("keys", [{}, {"temperature": 0.0}, {"repetition_penalty": 1.5, "top_k": 5}], ids=str)
def test_they_are_the_targets_own(subject, proposer, keys) -> None:
    [*plain] = outputs_of(make_llm(subject.model), subject.prompts, **keys)
    texts = [[*p, *o.outputs[0].token_ids] for p, o in zip(subject.prompts, plain, strict=True)]
    llm = make_llm(
        subject.model, None if proposer is None else proposer | {"texts": texts}, max_num_batched_tokens=32
    )
    got = outputs_of(llm, subject.prompts, logprobs=3, prompt_logprobs=2, **keys)
    for prompt, expected, output in zip(subject.prompts, plain, got, strict=True):
        completion = output.outputs[0]
        assert completion.token_ids == expected.outputs[0].token_ids
        law = exact(subject.model, prompt + completion.token_ids)
        check(completion.logprobs, law[len(prompt) - 1 :], completion.token_ids, 3)
        assert output.prompt_logprobs[0] is None
        check(output.prompt_logprobs[1:], law[: len(prompt) - 1], prompt[1:], 2)
        total = sum(
            entry[token].logprob
            for entry, token in zip(completion.logprobs, completion.token_ids, strict=True)
        )
        assert completion.cumulative_logprob == pytest.approx(total)
    if proposer is not None:
        assert engine_of(llm).metrics.num_accepted_tokens > 0


def test_preemption_and_prefix_hits_record_each_token_once(subject) -> None:
    row = make_llm(subject.model)._built.scorer.runner.bytes_per_token
    llm = make_llm(subject.model, scripted(k=4, wrong=0.3), block_size=1, kv_cache_memory_bytes=170 * row)
    for _ in range(2):
        for prompt, output in zip(
            subject.prompts, outputs_of(llm, subject.prompts, logprobs=0, prompt_logprobs=0), strict=True
        ):
            tokens = output.outputs[0].token_ids
            law = exact(subject.model, prompt + tokens)
            check(output.outputs[0].logprobs, law[len(prompt) - 1 :], tokens, 0)
            check(output.prompt_logprobs[1:], law[: len(prompt) - 1], prompt[1:], 0)
    assert engine_of(llm).metrics.num_preemptions > 0


def test_samples_have_their_own_and_ids_have_text(subject) -> None:
    llm = make_llm(subject.model, scripted(k=4, wrong=0.5), tokenizer=letter_tokenizer())
    [output] = outputs_of(llm, subject.prompts[:1], n=3, logprobs=-1, prompt_logprobs=1)
    assert len({tuple(c.token_ids) for c in output.outputs}) == 3
    for completion in output.outputs:
        law = exact(subject.model, subject.prompts[0] + completion.token_ids)
        check(completion.logprobs, law[len(subject.prompts[0]) - 1 :], completion.token_ids, 128)
        for token, entry in zip(completion.token_ids, completion.logprobs, strict=True):
            assert entry[token].decoded_token == spelled([token])
    assert len(output.prompt_logprobs) == len(subject.prompts[0])


def test_only_the_first_sample_records_the_prompt(subject) -> None:
    llm = make_llm(subject.model)
    params = SamplingParams(n=3, prompt_logprobs=1, max_tokens=2)
    request = llm._input_processor.prepare("r", subject.prompts[1], params, is_streaming=False)
    assert [sequence.prompt_logprobs is None for sequence in request.sequences] == [False, True, True]


def test_streams_show_as_many_as_tokens(subject) -> None:
    llm = make_llm(subject.model, scripted(k=4, texts=subject.texts))
    params = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, logprobs=1, ignore_eos=True)
    for output in llm.stream(subject.prompts[0], params):
        assert len(output.outputs[0].logprobs) == len(output.outputs[0].token_ids)


def test_a_stop_inside_an_accepted_draft_ends_them_too(subject) -> None:
    stop = subject.expected[0][5]
    llm = make_llm(subject.model, scripted(k=8, texts=subject.texts))
    [output] = outputs_of(llm, subject.prompts[:1], temperature=0.0, logprobs=0, stop_token_ids=[stop])
    tokens = output.outputs[0].token_ids
    assert tokens == subject.expected[0][: subject.expected[0].index(stop) + 1]
    assert len(output.outputs[0].logprobs) == len(tokens)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"logprobs": -2}, "logprobs"),
        ({"min_tokens": 20, "max_tokens": 10}, "min_tokens = 20 must not be above max_tokens = 10"),
        ({"logit_bias": {1: float("inf")}}, "biases must be finite"),
        ({"bad_words": [" "]}, "bad_words must not be empty or blank"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
    ],
)
def test_wrong_parameters_are_refused_at_once(keys, message) -> None:
    with pytest.raises(ConfigError, match=message):
        SamplingParams(**keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"allowed_token_ids": [1, 128]}, "allowed_token_ids has id 128, outside the vocabulary of 128"),
        ({"logit_bias": {-1: 2.0}}, "logit_bias has id -1"),
        ({"bad_words": ["x"]}, "bad_words needs a tokenizer"),
        ({"stop": "x"}, "stop needs a tokenizer; pass tokenizer= or use stop_token_ids"),
        ({"structured_outputs": {"json_object": True}}, "structured_outputs needs a tokenizer"),
    ],
)
def test_what_does_not_fit_the_target_is_refused_with_the_prompt(subject, keys, message) -> None:
    llm = make_llm(subject.model)
    with pytest.raises(ConfigError, match=message):
        llm.generate([subject.prompts[0]], SamplingParams(**keys))
    assert not llm._built.engine.has_work


@pytest.mark.parametrize(("count", "rows"), [(0, 128), (20, 48), (-1, 1)])
def test_a_step_lists_few_log_probabilities_of_a_prompt(subject, monkeypatch, count, rows) -> None:
    """They are spelled on the engine's thread, where other requests wait for the step."""
    prompt = [1 + i % 15 for i in range(150)]
    llm = make_llm(subject.model, max_num_batched_tokens=512)
    sizes, add = [], LogprobRecord.add

    def counted(self, logits, token_ids) -> None:
        sizes.append(len(token_ids))
        add(self, logits, token_ids)

    monkeypatch.setattr(LogprobRecord, "add", counted)
    params = SamplingParams(max_tokens=2, temperature=0.0, prompt_logprobs=count)
    [output] = llm.generate({"prompt_token_ids": prompt}, params)
    assert max(sizes) == min(rows, 149)
    assert sum(sizes) == 149
    assert output.prompt_logprobs[0] is None
    if count >= 0:
        check(output.prompt_logprobs[1:], exact(subject.model, prompt), prompt[1:], count)


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("start", ["text", "special"])
def test_bytes_join_to_the_text_and_alternatives_are_spelled_in_their_place(kind, start) -> None:
    tokenizer = TOKENIZERS[kind]()
    blank = ids_of(tokenizer, "\u0120" + "x" if kind == "byte level" else "▁x")
    end = tokenizer.eos_token_id
    prompt = ids_of(tokenizer, "x") if start == "text" else [end]
    said = [
        *blank, *ids_of(tokenizer, b"\xe2\x96\x93", b"\xf0\x9f\x98\x80", "x"), *blank,
        *ids_of(tokenizer, b"\xef\xbf\xbd", b"\xc3\xa9", "x"), end,
    ]  # fmt: skip
    llm = make_llm(
        speaker(tokenizer), scripted(k=3, texts=[[*prompt, *said]], wrong=0.3), tokenizer=tokenizer
    )
    [output] = llm.generate([{"prompt_token_ids": prompt}], saying(said, logprobs=-1))
    completion = output.outputs[0]
    assert completion.token_ids == said
    chosen = [entry[token] for entry, token in zip(completion.logprobs, said, strict=True)]
    assert b"".join(found.token_bytes for found in chosen).decode() == completion.text
    assert "".join(found.decoded_token for found in chosen[:-1]) == completion.text
    assert (chosen[-1].decoded_token, chosen[-1].token_bytes) == (tokenizer.eos_token, b"")
    before = b""
    for place, entry in enumerate(completion.logprobs):
        is_inside = not_decodable(before)
        for token, found in entry.items():
            raw = before + found.token_bytes
            if is_inside or not_decodable(raw):
                continue
            text = tokenizer.decode([*prompt, *said[:place], token], skip_special_tokens=True)
            assert text == tokenizer.decode(prompt, skip_special_tokens=True) + raw.decode(), (place, token)
            if token not in tokenizer.all_special_ids:
                assert found.decoded_token.encode() == found.token_bytes
        before += chosen[place].token_bytes
    firsts = {b"": range(256), b"\xe2": [0x96]}
    for head, following in firsts.items():
        entry = completion.logprobs[1 + len(head)]
        for byte in following:
            [token] = ids_of(tokenizer, bytes([byte]))
            assert entry[token].token_bytes == bytes([byte])


def not_decodable(raw: bytes) -> bool:
    """Return whether bytes are no text."""
    return raw.decode(errors="ignore").encode() != raw


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_prompt_tokens_are_spelled_in_their_place(kind) -> None:
    tokenizer = TOKENIZERS[kind]()
    prompt = ids_of(tokenizer, "x", b"\xe2\x96\x93caf\xc3\xa9", "x")
    llm = make_llm(speaker(tokenizer), tokenizer=tokenizer, max_num_batched_tokens=4)
    [output] = llm.generate([{"prompt_token_ids": prompt}], SamplingParams(max_tokens=1, prompt_logprobs=2))
    found = [entry[token] for entry, token in zip(output.prompt_logprobs[1:], prompt[1:], strict=True)]
    assert b"".join(token.token_bytes for token in found).decode() == "▓caféx"
    assert [token.decoded_token for token in found] == ["", "", "▓", "c", "a", "f", "", "é", "x"]


def test_a_token_with_an_equal_one_has_the_rank_of_the_first() -> None:
    record = LogprobRecord(1, None)
    record.add(torch.tensor([[2.0, 3.0, 3.0, 1.0]] * 2), [1, 2])
    assert [entry[token].rank for entry, token in zip(record.entries, (1, 2), strict=True)] == [1, 1]
