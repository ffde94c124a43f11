"""Every delivered token comes with the states that chose it: those of the position before it, over the final text."""

from __future__ import annotations

import pytest
import torch
from speccheck.engines import (
    engine_of,
    greedy,
    letter_tokenizer,
    make_llm,
    proposer_of,
    scripted,
    spelled,
    tokens_of,
)
from speccheck.models import tiny
from speccheck.states import check_states

from specdec import FinishReason
from specdec.engine.speculation import delivery as delivery_module

RUNS = {
    "plain": {},
    "eager": {"enforce_eager": True},
    "chunks": {"max_num_batched_tokens": 11},
    "small batch": {"max_num_seqs": 2},
    "one by one": {"max_num_batched_tokens": 3, "max_num_seqs": 1},
    "preempted": {"block_size": 1, "kv_cache_tokens": 176, "max_num_batched_tokens": 24},
    "preempted, nothing cached": {
        "block_size": 1, "kv_cache_tokens": 176, "max_num_batched_tokens": 24, "enable_prefix_caching": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("shape", "wrong"), [("chain", 0.3), ("tree", 0.3), ("mixed", 0.0)])
@pytest.mark.sampled(7, slow=7)
def test_states_belong_to_their_tokens(subject, run, shape, wrong) -> None:
    arguments = dict(RUNS[run])
    if "kv_cache_tokens" in arguments:
        row = make_llm(subject.model)._built.scorer.runner.bytes_per_token
        arguments["kv_cache_memory_bytes"] = arguments.pop("kv_cache_tokens") * row
    speculation = scripted("HiddenRecorder", 5, texts=subject.texts, shape=shape, wrong=wrong)
    llm = make_llm(subject.model, speculation, **arguments)
    proposer = proposer_of(llm)
    outputs = llm.generate(subject.prompts, greedy(32))
    assert [o.outputs[0].token_ids for o in outputs] == subject.expected
    assert proposer.complaints == []
    metrics = engine_of(llm).metrics
    assert metrics.proposer_errors == 0
    assert metrics.num_accepted_tokens > 0
    if run.startswith("preempted"):
        assert metrics.num_preemptions > 0
    for output, text in zip(outputs, subject.texts, strict=True):
        check_states(subject.model, proposer, output.request_id, text)


@pytest.mark.parametrize("length", [9, 22, 23, 24])
def test_no_draft_is_wanted_before_all_states_are_there(subject, length) -> None:
    """The last piece of a prompt makes the states of its tokens; a draft in that very step would be made without them."""
    prompt = subject.texts[3][:length]
    text = [*prompt, *tokens_of(make_llm(subject.model), [prompt], greedy(12))[0]]
    llm = make_llm(subject.model, scripted("HiddenRecorder", 4, texts=[text]), max_num_batched_tokens=11)
    proposer = proposer_of(llm)
    wanted: list[int] = []
    check = proposer.check

    def record(batch) -> None:
        check(batch)
        wanted.append(batch.max_nodes[0])

    proposer.check = record
    [output] = llm.generate([prompt], greedy(12))
    assert [*prompt, *output.outputs[0].token_ids] == text
    assert proposer.complaints == []
    check_states(subject.model, proposer, output.request_id, text)
    # A last piece of one token waits for nothing of its own pass: all states up to that token are there.
    num_pieces = length // 11 + (length % 11 > 1)
    assert wanted[:num_pieces] == [0] * num_pieces
    assert wanted[num_pieces] == 4


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_a_stop_inside_an_accepted_draft_leaves_the_states_of_others_in_place(subject, shape) -> None:
    """Requests end at stop ids and stop strings within their drafts, while others in the batch go on."""
    speculation = scripted("HiddenRecorder", 6, texts=subject.texts, shape=shape)
    llm = make_llm(subject.model, speculation, tokenizer=letter_tokenizer())
    proposer = proposer_of(llm)
    cuts = [3, 8, 13, 5, 32, 32]
    params = [
        greedy(32)
        if cut == 32
        else greedy(32, stop_token_ids=[e[cut]])
        if cut % 2
        else greedy(32, stop=spelled(e[cut - 1 : cut + 1]))
        for cut, e in zip(cuts, subject.expected, strict=True)
    ]
    outputs = llm.generate([{"prompt_token_ids": p} for p in subject.prompts], params)
    assert proposer.complaints == []
    for output, prompt, expected in zip(outputs, subject.prompts, subject.expected, strict=True):
        tokens = output.outputs[0].token_ids
        assert tokens == expected[: len(tokens)]
        check_states(subject.model, proposer, output.request_id, [*prompt, *tokens])
    assert [len(o.outputs[0].token_ids) < 32 for o in outputs] == [True] * 4 + [False] * 2


def test_after_an_error_those_requests_rest_and_others_keep_their_states(subject) -> None:
    speculation = scripted("HiddenRecorder", 4, texts=subject.texts)
    llm = make_llm(subject.model, speculation, max_num_seqs=3)
    proposer = proposer_of(llm)
    plain, failed = proposer.draft, []

    def draft(batch):
        if proposer.num_calls == 3:
            failed.extend(batch.request_ids)
            raise RuntimeError("once")
        return plain(batch)

    proposer.draft = draft
    outputs = llm.generate(subject.prompts, greedy(32))
    assert [o.outputs[0].token_ids for o in outputs] == subject.expected
    assert proposer.complaints == []
    assert len(failed) == 3
    for output, text in zip(outputs, subject.texts, strict=True):
        if output.request_id in failed and len(output.prompt_token_ids) > 60:
            assert output.metrics.num_drafts <= 1, (
                "too few tokens to come for so many that would be computed again"
            )
        else:
            assert output.metrics.num_drafts > 0
            check_states(subject.model, proposer, output.request_id, text)


@pytest.mark.parametrize("name", ["opt", "gpt2", "gemma2", "gpt_neox"])
def test_states_of_models_that_run_by_their_own_forward(name) -> None:
    model = tiny(name)
    prompts = [list(range(3, 30)), [5, 9, 100]]
    expected = tokens_of(make_llm(model), prompts, greedy(10))
    texts = [[*p, *e] for p, e in zip(prompts, expected, strict=True)]
    llm = make_llm(model, scripted("HiddenRecorder", 4, texts=texts, shape="mixed", wrong=0.2))
    proposer = proposer_of(llm)
    outputs = llm.generate(prompts, greedy(10))
    assert proposer.complaints == []
    for output, text in zip(outputs, texts, strict=True):
        check_states(model, proposer, output.request_id, text)


@pytest.mark.parametrize("length", [0, 5])
@pytest.mark.parametrize("wrong", [0.0, 1.0])
def test_a_dead_end_leaves_the_states_of_others_in_place(subject, length, wrong) -> None:
    """The row from which nothing could be chosen chose no token, so its state belongs to nobody."""

    def dead_end(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        return logits - torch.inf if len(output) >= length else logits

    llm = make_llm(subject.model, scripted("HiddenRecorder", 4, texts=subject.texts, wrong=wrong))
    proposer = proposer_of(llm)
    params = [greedy(32, logits_processors=[dead_end]) if i == 1 else greedy(32) for i in range(6)]
    outputs = llm.generate(subject.prompts, params)
    assert outputs[1].outputs[0].finish_reason == "error"
    assert proposer.complaints == []
    assert engine_of(llm).metrics.proposer_errors == 0
    for index, (output, text) in enumerate(zip(outputs, subject.texts, strict=True)):
        if index != 1:
            assert output.outputs[0].token_ids == subject.expected[index]
            check_states(subject.model, proposer, output.request_id, text)
    tokens, states, _ = proposer.final[outputs[1].request_id]
    assert tokens == subject.texts[1][: len(subject.prompts[1]) + length]
    assert len(states) == len(tokens)


def test_states_that_pile_up_while_the_proposer_rests_are_dropped_beyond_a_limit(
    subject, monkeypatch
) -> None:
    monkeypatch.setattr(delivery_module, "_MAX_KEPT", 8)
    llm = make_llm(subject.model, scripted("HiddenRecorder", 2, texts=subject.texts, wrong=1.0))
    proposer, engine = proposer_of(llm), engine_of(llm)
    outputs, kept = [], []
    for output in llm.stream(subject.prompts[0], greedy(32)):
        outputs.append(output)
        if len(outputs) == 4:
            engine._speculation._guard.pause_left = 20  # as after repeated overruns of its time
        for sequence in engine._scheduler.running:
            kept.append(sum(len(states[0]) for states in sequence.deliverable_hidden))
    assert outputs[-1].outputs[0].token_ids == subject.expected[0]
    assert max(kept[1:]) == 8
    assert kept[-1] == 0
    assert proposer.complaints == []
    [(_, _, reason)] = proposer.final.values()
    assert reason is FinishReason.ERROR, "not all was told"
    later = llm.generate(subject.prompts[2:3], greedy(32))[0]
    assert later.metrics.num_drafts > 0
    check_states(subject.model, proposer, later.request_id, subject.texts[2])
