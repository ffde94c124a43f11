"""The text is the target's, whatever its assistant drafts; and drafts that are right are accepted."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from mtp_check.assistants import VOCAB_SIZE, WINDOW, Pair, make_pair
from mtp_check.cycles import MOST, PERIOD, circle, make_circle, read_rows, read_states
from speccheck.multimodal import SERVED, whole

from specdec import LLM, SamplingParams

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"draft_sample_method": "greedy", "num_speculative_tokens": 3},
    "coupled": {"num_speculative_tokens": 6},
    "drawn": {"draft_sample_method": "probabilistic", "num_speculative_tokens": 2},
    "unsure": {"num_speculative_tokens": 5, "draft_confidence_threshold": 0.3},
    "adaptive": {"num_speculative_tokens": 4, "adaptive": True},
    "short": {"num_speculative_tokens": 3, "max_model_len": 20},
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    @cache
    def made(kind: str, is_ordered: bool = False) -> Pair:
        return make_pair(kind, tmp_path_factory.mktemp(kind), is_ordered=is_ordered)

    return made


def make_llm(pair: Pair, config: dict[str, Any] | None, **arguments: Any) -> LLM:
    keys = None
    if config is not None:
        keys = {"method": "mtp", "model": str(pair.assistant), "on_proposer_error": "raise", **config}
    known = {"dtype": "float32", "skip_tokenizer_init": True, "max_num_seqs": 3, "strict_drafts": True}
    known |= {"block_size": 4}
    return LLM(model=str(pair.target), speculative_config=keys, **known | arguments)


def ask(llm: LLM, temperature: float) -> list[Any]:
    generator = torch.Generator().manual_seed(2)
    lengths = (9, 1, 2, 3 * WINDOW)
    prompts = [torch.randint(VOCAB_SIZE, (n,), generator=generator).tolist() for n in lengths]
    params = [
        SamplingParams(temperature=temperature, seed=i, max_tokens=30, ignore_eos=True)
        for i in range(len(prompts))
    ]
    return llm.generate([{"prompt_token_ids": ids} for ids in prompts], params)


def tokens(outputs: list[Any]) -> list[list[int]]:
    return [list(output.outputs[0].token_ids) for output in outputs]


@cache
def plain(pair: Pair, temperature: float) -> list[list[int]]:
    return tokens(ask(make_llm(pair, None), temperature))


@pytest.mark.parametrize(
    ("way", "kind", "is_ordered", "temperature"),
    [
        pytest.param(
            way,
            ("dense", "shared", "unified")[place % 3],
            place % 2 == 1,
            temperature,
            marks=[pytest.mark.slow] * ((place + number) % 2),
        )
        for place, way in enumerate(WAYS)
        for number, temperature in enumerate((0.0, 0.8))
    ],
)
def test_text_is_that_of_plain_decoding(pairs, way, kind, is_ordered, temperature):
    pair = pairs(kind, is_ordered)
    llm = make_llm(pair, WAYS[way])
    for _ in range(2):  # the second time prefixes are cached
        assert tokens(ask(llm, temperature)) == plain(pair, temperature)
    assert llm._built.engine.metrics.num_draft_tokens > 20


@pytest.mark.parametrize("sampler", ["probabilistic", pytest.param("block", marks=pytest.mark.slow)])
def test_a_sampler_that_uses_q(pairs, sampler):
    pair = pairs("shared", True)
    config = {"num_speculative_tokens": 3, "rejection_sample_method": sampler}
    llm = make_llm(pair, config, enable_prefix_caching=False)
    assert tokens(ask(llm, 0.0)) == plain(pair, 0.0)
    assert tokens(ask(llm, 0.9)) == tokens(ask(llm, 0.9))


def test_requests_that_end_early_leave_nothing_behind(pairs):
    pair = pairs("dense")
    small = {"max_model_len": 64, "num_gpu_blocks_override": 17}
    llm = make_llm(pair, {"num_speculative_tokens": 3, "adaptive": False}, **small)
    assert tokens(ask(llm, 0.0)) == plain(pair, 0.0)
    metrics = llm._built.engine.metrics
    assert metrics.num_preemptions > 0
    for count in (2, 3, 4):
        drafted = metrics.num_draft_tokens
        stream = llm.stream(
            {"prompt_token_ids": [3, 1, 4, 1, 5]}, SamplingParams(temperature=0.0, max_tokens=20)
        )
        for _ in range(count):
            next(stream)
        stream.close()
        assert metrics.num_draft_tokens > drafted
        assert not llm._built.engine.proposer._states._states
        assert tokens(ask(llm, 0.0)) == plain(pair, 0.0)


def test_the_language_model_of_a_multimodal_target(tmp_path: Path):
    config = SERVED["gemma4_small"]()
    whole(config).save_pretrained(tmp_path / "target")
    text = config.text_config
    own = {"vocab_size": text.vocab_size, "max_position_embeddings": text.max_position_embeddings}
    heads = {"num_attention_heads": text.num_attention_heads, "num_key_value_heads": text.num_key_value_heads}
    made = make_pair("shared", tmp_path / "made", backbone_hidden_size=text.hidden_size, **own, **heads)
    pair = Pair(tmp_path / "target", made.assistant)
    llm = make_llm(pair, {"num_speculative_tokens": 3})
    assert tokens(ask(llm, 0.0)) == plain(pair, 0.0)
    assert llm._built.engine.metrics.num_draft_tokens > 20


def count(pair: Pair, k: int) -> tuple[int, int]:
    """Return how many tokens were drafted and accepted, for texts longer than a period."""
    config = {"num_speculative_tokens": k, "adaptive": False, "draft_sample_method": "greedy"}
    llm = make_llm(pair, config)
    prompts = [circle(start, length) for start, length in ((0, PERIOD), (5, PERIOD + 7), (9, 2 * PERIOD))]
    params = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params)
    assert tokens(outputs) == [circle(ids[-1] + 1, 60) for ids in prompts]
    metrics = llm._built.engine.metrics
    return metrics.num_draft_tokens, metrics.num_accepted_tokens


@pytest.mark.parametrize("k", [1, 3, 8])
def test_an_assistant_that_reads_states_is_always_right(tmp_path, k):
    drafted, accepted = count(read_states(make_circle(tmp_path)), k)
    assert drafted == accepted > 80


@pytest.mark.parametrize("k", [1, MOST])
@pytest.mark.parametrize("kind", ["sliding_attention", "full_attention"])
def test_an_assistant_that_reads_rows_is_always_right(tmp_path, kind, k):
    """From the last token's position; the first row that a sliding layer sees is one that it needs."""
    drafted, accepted = count(read_rows(make_circle(tmp_path), kind), k)
    assert drafted == accepted > 80


def test_rows_before_the_window_are_not_seen(tmp_path):
    drafted, accepted = count(read_rows(make_circle(tmp_path, PERIOD - 3), "sliding_attention"), 1)
    assert drafted > 80 > 8 * accepted
