"""The text stays the target's, drafts are made and accepted, and nothing that a proposer does reaches the target."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from transformers import AutoTokenizer

import specdec_zoo
from specdec import ConfigError, PluginError
from specdec_llama_cpp import Drafter
from specdec_llama_cpp.checked import CheckedEngine
from specdec_testing import HostConformance
from specdec_testing.support.generation import plain
from specdec_testing.support.target import check_target

NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
SUFFIX = {"method": "suffix", "num_speculative_tokens": 6}
SAME = Path(__file__).with_name("same.py")
ACCEPTED = "vllm:spec_decode_num_accepted_tokens"
DraftModel = Callable[[npt.NDArray[np.intc]], npt.NDArray[np.intc]]


class ScriptedLlama:
    """Stands in for `llama_cpp.Llama`: what follows a text is what the script says, whatever is drafted.

    Args:
        draft_model: asked after every pass.
        num_ids: size of its vocabulary.
        num_positions: of its context.
    """

    def __init__(
        self, draft_model: DraftModel | None = None, num_ids: int = 100, num_positions: int = 512
    ) -> None:
        self.draft_model = draft_model
        self.num_ids = num_ids
        self.input_ids = np.zeros(num_positions, np.intc)
        self.num_passes = 0
        self.drafts: list[list[int]] = []
        self.longest = 0
        """The most positions that a text takes with its draft."""

    def n_vocab(self) -> int:
        return self.num_ids

    def n_ctx(self) -> int:
        return len(self.input_ids)

    def token_eos(self) -> int:
        return -1

    def generate(self, text: list[int], num_prompt: int) -> Iterator[int]:
        """Yield the tokens of `text` after its first `num_prompt`, taken from drafts where these are accepted."""
        at, tokens = 0, text[:num_prompt]
        sampled = num_prompt
        while True:
            self.num_passes += 1
            assert all(0 <= token < self.num_ids for token in tokens)
            self.input_ids[at : at + len(tokens)] = tokens
            at += len(tokens)
            while sampled <= at:
                token = text[sampled]
                yield token
                if sampled == len(text) - 1:
                    return
                tokens = [token]
                if sampled < at and self.input_ids[sampled] != token:
                    at = sampled
                sampled += 1
            if self.draft_model is not None:
                self.input_ids[at : at + 1] = tokens
                drafted = self.draft_model(self.input_ids[: at + 1])
                assert drafted.dtype == np.intc
                self.drafts.append(drafted.tolist())
                self.longest = max(self.longest, at + 1 + len(drafted))
                tokens = tokens + drafted.astype(int)[: len(self.input_ids) - at - 1].tolist()


def made_up(seed: int, length: int = 120, repeats: int = 3) -> list[int]:
    """Return a text that says the same several times."""
    piece = random.Random(seed).choices(range(100), k=length // repeats)
    return piece * repeats


def written(drafter: Drafter, text: list[int], num_prompt: int = 20) -> ScriptedLlama:
    llama = ScriptedLlama(drafter)
    assert list(llama.generate(text, num_prompt)) == text[num_prompt:]
    return llama


def count(drafter: Drafter, name: str) -> float:
    return next(metric.value for metric in drafter.metrics() if metric.name == name)


@pytest.mark.parametrize(
    "config",
    [
        NGRAM,
        SUFFIX,
        {
            "method": "composite",
            "policy": "longest",
            "num_speculative_tokens": 4,
            "proposers": [NGRAM, SUFFIX],
        },
    ],
    ids=lambda config: config["method"],
)
def test_drafts_are_accepted(config) -> None:
    drafter = Drafter(config)
    text = made_up(1)
    llama = written(drafter, text)
    assert llama.num_passes < 60 < len(text) - 20
    unseen = len(text) - 20 - llama.num_passes - count(drafter, ACCEPTED)
    assert 0 <= unseen <= 6  # of the last step, behind which nothing is asked
    assert count(drafter, "specdec:proposer_errors") == 0


def test_as_many_are_accepted_as_agree_with_the_draft_before_the_last_token() -> None:
    drafter = Drafter(
        {"method": f"{SAME}:Same", "num_speculative_tokens": 3}, vocab_size=100, max_model_len=512
    )
    text = [1, 2]
    for new, num_accepted in (
        ([5], 0),  # the target's own token
        ([7, 5], 1),
        ([7, 8, 5], 2),
        ([7, 8, 9, 5], 3),
        ([7], 0),  # drafted too, but the last token is always the target's own
        ([7, 8], 1),
        ([4, 8, 9, 5], 0),  # from the caller: none is accepted behind one that differs
        ([7, 5, 9, 5], 1),
    ):
        assert drafter(np.array(text, np.intc)).tolist() == [7, 8, 9]
        before = count(drafter, ACCEPTED)
        text += new
        drafter(np.array(text, np.intc))
        assert count(drafter, ACCEPTED) - before == num_accepted, new
        text += [5]


def test_without_drafts_a_pass_a_token() -> None:
    llama = ScriptedLlama()
    assert len(list(llama.generate(made_up(1), 20))) == 100 == llama.num_passes


def test_another_text_begins_a_request() -> None:
    drafter = Drafter(NGRAM)
    first, second = made_up(1), made_up(2)
    assert written(drafter, first).drafts == written(drafter, first).drafts
    alone = written(Drafter(NGRAM), second).drafts
    assert written(drafter, second).drafts == alone


def test_a_conversation_that_goes_on_is_not_taken_for_accepted_drafts() -> None:
    drafter = Drafter(NGRAM)
    text = made_up(1)
    written(drafter, text[:60])
    before = count(drafter, ACCEPTED)
    llama = written(drafter, [*text[:60], *made_up(3)], 120)
    assert 0 <= 60 - llama.num_passes - (count(drafter, ACCEPTED) - before) <= 4


def test_what_was_written_is_learnt_from() -> None:
    text = made_up(4, length=60, repeats=1)
    drafter = Drafter(SUFFIX)
    assert written(drafter, text).num_passes == 40
    drafter.finish()
    assert written(drafter, text).num_passes < 20


def test_a_draft_model_of_the_same_vocabulary() -> None:
    tokenizer = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
    text = tokenizer("def __init__(self, name, value):\n    self.name = name\n    self.value = value\n")[
        "input_ids"
    ]
    config = {"method": "draft_model", "model": str(specdec_zoo.path("draft")), "num_speculative_tokens": 3}
    drafter = Drafter(config, tokenizer=tokenizer)
    llama = ScriptedLlama(drafter, num_ids=len(tokenizer))
    assert list(llama.generate(text, 8)) == text[8:]
    assert count(drafter, ACCEPTED) > 5


class TargetLlama(ScriptedLlama):
    """Says what a target of specdec says."""

    def __init__(self, model: str, *, n_ctx: int, draft_model: DraftModel, **_: object) -> None:
        self.target = check_target(model)
        super().__init__(draft_model, self.target.handle.info.vocab_size, n_ctx)

    def generate(self, tokens: list[int], *, temp: float) -> Iterator[int]:
        [text] = plain(self.target, (tuple(tokens),), temp)
        return super().generate(tokens + text, len(tokens))

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass


class Engine(CheckedEngine):
    """The adapter's, on such a stand-in."""

    def __init__(self, *arguments: Any, **keys: Any) -> None:
        with patch.dict(sys.modules, llama_cpp=SimpleNamespace(Llama=TargetLlama)):
            super().__init__(*arguments, **keys)


class TestLlamaCpp(HostConformance):
    """What every engine owes the proposers that it hosts."""

    host = Engine
    model = "tiny"


def test_heads_are_refused() -> None:
    drafter = Drafter({"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3})
    message = (
        "'eagle3' needs hidden states of the target, which llama-cpp-python does not provide: use a method"
    )
    with pytest.raises(ConfigError, match=message):
        written(drafter, made_up(1))


def test_heads_are_refused_at_once_where_the_target_is_known() -> None:
    with pytest.raises(ConfigError, match="llama-cpp-python does not provide"):
        Drafter(
            {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3},
            vocab_size=100,
            max_model_len=64,
        )


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        (None, ConfigError, "needs one that names a method"),
        ({"method": "nope", "num_speculative_tokens": 1}, PluginError, "there is no method 'nope'"),
        (NGRAM | {"prompt_lookup": 3}, ConfigError, "'prompt_lookup'"),
    ],
)
def test_wrong_configurations(config, error, message) -> None:
    with pytest.raises(error, match=message):
        Drafter(config)


def test_rejection_samplers_are_refused() -> None:
    config = NGRAM | {"rejection_sample_method": "probabilistic"}
    with pytest.raises(ConfigError, match=r"'rejection_sample_method'.* not available in llama-cpp-python"):
        Drafter(config, vocab_size=100, max_model_len=64)


def test_an_unknown_caller_must_say_the_vocabulary() -> None:
    with pytest.raises(ConfigError, match="vocab_size and max_model_len are not known: pass both"):
        Drafter(NGRAM)(np.zeros(3, np.intc))
    draft = Drafter(NGRAM, vocab_size=100, max_model_len=64)(np.array([1, 2, 3, 4, 1, 2], np.intc))
    assert draft.tolist() == [3, 4, 1, 2]
    assert draft.dtype == np.intc


def test_the_context_is_not_overrun() -> None:
    drafter = Drafter(NGRAM)
    llama = ScriptedLlama(drafter, num_positions=64)
    text = made_up(1, length=63, repeats=3)
    assert list(llama.generate(text, 20)) == text[20:]
    assert 50 < llama.longest < 64


def test_adaptive_leaves_out_drafts_that_do_not_pay() -> None:
    """Of four ids in any order every n-gram was there before, and what follows is a guess."""
    rng = random.Random(1)
    text = [rng.randrange(4) for _ in range(400)]
    num_drafted = {}
    for adaptive in (False, True):
        drafter = Drafter({**NGRAM, "adaptive": adaptive}, vocab_size=100, max_model_len=512)

        def asked(ids: npt.NDArray[np.intc], drafter: Drafter = drafter) -> npt.NDArray[np.intc]:
            drafted = drafter(ids)
            time.sleep(0.0005 * (1 + 2 * len(drafted)))  # the pass that verifies it
            return drafted

        llama = ScriptedLlama(asked)
        assert list(llama.generate(text, 20)) == text[20:]
        num_drafted[adaptive] = sum(map(len, llama.drafts))
    assert 0 < num_drafted[True] < 0.5 * num_drafted[False]
