"""The tokens of `generate`, whatever is asked for."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from transformers import StoppingCriteria, StopStringCriteria, TextIteratorStreamer
from transformers.generation.logits_process import LogitsProcessor
from transformers.generation.streamers import BaseStreamer

import specdec_transformers

NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}
ENDS = [7, 11, 30]


class Odd(LogitsProcessor):
    """Lowers ids that are not of the parity of the text's length."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        other = torch.arange(scores.shape[-1]) % 2 != input_ids.shape[1] % 2
        return scores - 3.0 * other


class Seen(StoppingCriteria):
    """Ends each row at a length of its own, and keeps what it was asked about."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.ids: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        self.ids.append(input_ids.clone())
        return torch.tensor([input_ids.shape[1] >= length for length in self.lengths])


class Kept(BaseStreamer):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.got: list[list[Any]] = []
        self.has_ended = False

    def put(self, value: torch.Tensor) -> None:
        self.got.append(value.tolist())

    def end(self) -> None:
        self.has_ended = True


GREEDY: dict[str, dict[str, Any]] = {
    "plain": {},
    "max_length": {"max_new_tokens": None, "max_length": 40},
    "penalties": {"repetition_penalty": 1.4, "no_repeat_ngram_size": 3},
    "ends": {"eos_token_id": [7, 11, 30], "min_new_tokens": 3},
    "bans": {"bad_words_ids": [[7], [9, 11]], "suppress_tokens": [5, 6], "begin_suppress_tokens": [8]},
    "bias": {"sequence_bias": {(11,): 5.0}, "renormalize_logits": True, "remove_invalid_values": True},
    "by prompt": {"encoder_repetition_penalty": 1.4, "encoder_no_repeat_ngram_size": 2},
    "padding of its own": {"eos_token_id": [7, 11, 30], "pad_token_id": 5},
    "long ends": {"exponential_decay_length_penalty": (4, 1.5), "forced_eos_token_id": 9, "eos_token_id": 9},
    "watermark": {"watermarking_config": {"bias": 2.5, "seeding_scheme": "selfhash"}},
    "own processor": {"logits_processor_": lambda: [Odd()]},
    "by row": {"prefix_allowed_tokens_fn": lambda row, ids: range(row, 48, 1 + row)},
}


@pytest.mark.parametrize("case", GREEDY)
def test_greedy_tokens_are_those_of_generate(both, case) -> None:
    expected, found = both(**{"max_new_tokens": 24} | GREEDY[case])
    assert torch.equal(found, expected)


def test_drafts_are_accepted(both, model) -> None:
    specdec_transformers.release(model)
    both(max_new_tokens=24)
    counts = {metric.name: metric.value for metric in specdec_transformers.metrics(model)[:3]}
    assert counts["vllm:spec_decode_num_accepted_tokens"] > 5


@pytest.mark.parametrize(
    "speculative_config",
    [
        {"method": "suffix", "num_speculative_tokens": 6},
        {"method": "draft_model", "model": "zoo", "num_speculative_tokens": 3},
        '{"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3}',
    ],
    ids=["suffix", "draft_model", "eagle3, as text"],
)
def test_methods_on_the_zoo(zoo_model, tokenizer, speculative_config) -> None:
    inputs = tokenizer(
        ["    x = 1\n    x = 1\n    x =", "import os"], return_tensors="pt", padding=True, padding_side="left"
    )
    expected = zoo_model.generate(**inputs, max_new_tokens=12)
    found = zoo_model.generate(
        **inputs,
        max_new_tokens=12,
        custom_generate=specdec_transformers.generate,
        speculative_config=speculative_config,
    )
    assert torch.equal(found, expected)
    counts = {metric.name: metric.value for metric in specdec_transformers.metrics(zoo_model)[:3]}
    assert counts["vllm:spec_decode_num_accepted_tokens"] > 0


@pytest.mark.parametrize("ends", [47, None], ids=["with an end of text", "without"])
def test_criteria_are_asked_what_generate_asks_them(both, batch, ends) -> None:
    width = batch["input_ids"].shape[1]
    asked: list[Seen] = []

    def criteria() -> list[StoppingCriteria]:
        asked.append(Seen([width + 5, width + 3, width + 12]))
        return [asked[-1]]

    expected, found = both(max_new_tokens=24, eos_token_id=ends, stopping_criteria_=criteria)
    assert torch.equal(found, expected)
    theirs, ours = asked
    assert len(ours.ids) > 3
    assert all(map(torch.equal, ours.ids, theirs.ids))
    assert len(ours.ids) == len(theirs.ids)


def test_stop_strings(zoo_model, tokenizer) -> None:
    inputs = tokenizer("    x = 1\n    x = 1\n    x =", return_tensors="pt")
    asked = {"max_new_tokens": 12, "stopping_criteria": [StopStringCriteria(tokenizer, ["\n"])]}
    expected = zoo_model.generate(**inputs, **asked)
    found = zoo_model.generate(
        **inputs, **asked, custom_generate=specdec_transformers.generate, speculative_config=NGRAM
    )
    assert torch.equal(found, expected)
    assert tokenizer.decode(found[0]).count("\n") == 3


def test_time_limit(both) -> None:
    expected, found = both(max_new_tokens=24, max_time=0.0)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("rows", [1, 3])
def test_streamers_get_what_generate_gives_them(both, batch, rows) -> None:
    streamers: list[Kept] = []

    def streamer() -> Kept:
        streamers.append(Kept())
        return streamers[-1]

    inputs = {name: value[-rows:] for name, value in batch.items()}
    both(**inputs, max_new_tokens=12, eos_token_id=ENDS, streamer_=streamer)
    theirs, ours = streamers
    assert ours.got == theirs.got
    assert ours.has_ended


def test_text_can_be_read_on_another_thread(zoo_model, tokenizer) -> None:
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=60)
    inputs = tokenizer("import os\nimport", return_tensors="pt")
    given = {"max_new_tokens": 12, "custom_generate": specdec_transformers.generate}
    thread = threading.Thread(
        target=zoo_model.generate,
        kwargs={**inputs, **given, "streamer": streamer, "speculative_config": NGRAM},
    )
    thread.start()
    text = "".join(streamer)
    thread.join()
    expected = zoo_model.generate(**inputs, max_new_tokens=12)[0, inputs["input_ids"].shape[1] :]
    assert text == tokenizer.decode(expected)


def test_scores_and_logits(both, batch) -> None:
    expected, found = both(
        max_new_tokens=16,
        eos_token_id=ENDS,
        repetition_penalty=1.3,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
    )
    assert torch.equal(found.sequences, expected.sequences)
    assert len(found.scores) == len(expected.scores) == len(found.logits)
    start = batch["input_ids"].shape[1]
    is_end = torch.isin(found.sequences[:, start:], torch.tensor(ENDS)).long()
    is_on = is_end.cumsum(-1) - is_end == 0
    assert is_on.all(-1).tolist().count(True) in (1, 2)  # some rows end before others
    for column, on in enumerate(is_on.unbind(-1)):
        for ours, theirs in ((found.scores, expected.scores), (found.logits, expected.logits)):
            torch.testing.assert_close(ours[column][on], theirs[column][on], rtol=0, atol=1e-3)
        assert bool((found.logits[column][~on] == 0).all())


def test_a_plain_output_has_neither(both) -> None:
    _, found = both(max_new_tokens=4, return_dict_in_generate=True)
    assert list(found) == ["sequences"]


SAMPLES = 600
LAWS = {
    "top_k and top_p": {"temperature": 0.8, "top_k": 4, "top_p": 0.95},
    "min_p": {"temperature": 1.3, "top_k": 3, "min_p": 0.02},
    "all": {"temperature": 1.2, "top_k": 4, "top_p": 0.95, "min_p": 0.03},
    "typical": {"top_k": 3, "typical_p": 0.9, "repetition_penalty": 1.1},
}


@pytest.mark.parametrize("case", LAWS)
def test_samples_follow_the_law_of_generate(model, batch, case) -> None:
    inputs = {"input_ids": batch["input_ids"][:1]}
    asked = {"do_sample": True, "max_new_tokens": 2, "num_return_sequences": SAMPLES, **LAWS[case]}
    torch.manual_seed(11)
    found = model.generate(
        **inputs,
        **asked,
        custom_generate=specdec_transformers.generate,
        speculative_config=NGRAM,
    )[:, -2:]
    kept = {"return_dict_in_generate": True, "output_scores": True, "do_sample": True, "max_new_tokens": 1}
    law: dict[tuple[int, int], float] = {}
    first = model.generate(**inputs, **LAWS[case], **kept).scores[0][0].softmax(-1)
    for token in first.nonzero()[:, 0].tolist():
        after = torch.cat([inputs["input_ids"], torch.tensor([[token]])], -1)
        second = model.generate(input_ids=after, **LAWS[case], **kept).scores[0][0].softmax(-1)
        for other in second.nonzero()[:, 0].tolist():
            law[token, other] = float(first[token] * second[other])
    counts = dict.fromkeys(law, 0)
    for pair in map(tuple, found.tolist()):
        counts[pair] += 1
    often = [pair for pair in law if law[pair] * SAMPLES >= 5]
    rest = [SAMPLES - sum(counts[pair] for pair in often), SAMPLES * (1 - sum(law[pair] for pair in often))]
    cells = [[counts[pair], SAMPLES * law[pair]] for pair in often] + ([rest] if rest[1] >= 5 else [])
    observed, expected = zip(*cells, strict=True)
    total = sum(observed) / sum(expected)
    assert len(cells) > 2
    assert chisquare(observed, [value * total for value in expected]).pvalue > 1e-4


def test_a_seed_makes_a_call_repeatable(model, batch) -> None:
    def call(seed: int, speculative_config: Any) -> torch.Tensor:
        torch.manual_seed(seed)
        return model.generate(
            **batch,
            max_new_tokens=16,
            do_sample=True,
            custom_generate=specdec_transformers.generate,
            speculative_config=speculative_config,
        )

    first = call(1, {"method": "ngram", "num_speculative_tokens": 3})
    assert torch.equal(first, call(1, {"method": "ngram", "num_speculative_tokens": 3}))
    assert torch.equal(first, call(1, None))
    assert not torch.equal(first, call(2, None))
