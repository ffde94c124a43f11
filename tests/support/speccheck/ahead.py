"""Work that succeeds on committed tokens and fails along drafts: grammars, processors, rules, predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from llguidance import LLMatcher

from specdec import LLM
from specdec.adaptive.prediction import PredictionCursor
from specdec.interfaces import RowBlock
from specdec.logits.rules.bans import BadWordsRule
from specdec.logits.rules.penalties import PenaltyRule
from specdec_runtime.structured_outputs import compiler
from specdec_runtime.structured_outputs.state import MatcherState

ANYTHING = {"regex": r"(.|\n)*"}
"""A grammar that allows every text, so that no draft is cut by what it forbids."""


class Matcher:
    """A matcher of llguidance that comes to a limit and stays there, where a condition holds of what it was asked.

    Args:
        inner: the matcher.
        is_too_much: takes the tokens that it has seen, and whether it was moved back.
    """

    def __init__(self, inner: LLMatcher, is_too_much: Callable[[list[int], bool], bool]) -> None:
        self._inner, self._is_too_much = inner, is_too_much
        self._seen, self._failed = list[int](), False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def is_error(self) -> bool:
        return self._failed or self._inner.is_error()

    def get_error(self) -> str:
        return "lexer error: pretended limit" if self._failed else self._inner.get_error()

    def try_consume_tokens(self, tokens: list[int]) -> int:
        if self._failed:
            return 0
        count = self._inner.try_consume_tokens(tokens)
        self._seen += tokens[:count]
        self._failed = self._is_too_much(self._seen, False)
        return count

    def rollback(self, num_tokens: int) -> bool:
        if num_tokens:
            del self._seen[-num_tokens:]
            self._failed = self._failed or self._is_too_much(self._seen, True)
        return self._inner.rollback(num_tokens)

    def compute_ff_bytes(self) -> bytes:
        return b"" if self._failed else self._inner.compute_ff_bytes()

    def unsafe_compute_mask_ptr(self, pointer: int, size: int) -> None:
        if not self._failed:
            self._inner.unsafe_compute_mask_ptr(pointer, size)


def limited(monkeypatch: pytest.MonkeyPatch, is_too_much: Callable[[list[int], bool], bool]) -> list[int]:
    """Give every grammar from now on such a matcher; returns a list that grows by one for each."""
    made, new = list[int](), compiler.new_matcher

    def new_matcher(tokens: Any, grammar: str) -> Any:
        made.append(len(made))
        return Matcher(new(tokens, grammar), is_too_much)

    monkeypatch.setattr(compiler, "new_matcher", new_matcher)
    return made


Spoil = Callable[[pytest.MonkeyPatch, LLM, list[int]], dict[str, Any]]
"""Makes work along drafts fail, given the engine and the right text; returns sampling parameters that bring it about."""


def _off_the_text(monkeypatch: pytest.MonkeyPatch, llm: LLM, text: list[int]) -> dict[str, Any]:
    limited(monkeypatch, lambda seen, is_back: seen != text[: len(seen)])
    return {"structured_outputs": ANYTHING}


def _moved_back(monkeypatch: pytest.MonkeyPatch, llm: LLM, text: list[int]) -> dict[str, Any]:
    limited(monkeypatch, lambda seen, is_back: is_back)
    return {"structured_outputs": ANYTHING}


def _committed(llm: LLM) -> int:
    """Return the number of output tokens of the sample with rules."""
    return max(s.num_output_tokens for s in llm._built.engine._owners if s.rules is not None)


def _processor(monkeypatch: pytest.MonkeyPatch, llm: LLM, text: list[int]) -> dict[str, Any]:
    def process(output: list[int], logits: torch.Tensor) -> torch.Tensor:
        if len(output) > _committed(llm):
            raise KeyError("a draft")
        return logits

    return {"logits_processors": [process]}


def _state(name: str) -> Spoil:
    def spoil(monkeypatch: pytest.MonkeyPatch, llm: LLM, text: list[int]) -> dict[str, Any]:
        right = getattr(MatcherState, name)

        def call(state: MatcherState, *arguments: Any) -> Any:
            ahead = arguments[1] if name == "mask" else arguments[0]
            if not isinstance(ahead, Sequence) or len(ahead):
                raise RuntimeError("a draft")
            return right(state, *arguments)

        monkeypatch.setattr(MatcherState, name, call)
        return {"structured_outputs": ANYTHING}

    return spoil


def _rule(rule: type[Any], **keys: Any) -> Spoil:
    def spoil(monkeypatch: pytest.MonkeyPatch, llm: LLM, text: list[int]) -> dict[str, Any]:
        right = rule.add_to

        def add_to(self: Any, edits: Any, block: RowBlock) -> None:
            if block.num_nodes:
                raise IndexError("a draft")
            right(self, edits, block)

        monkeypatch.setattr(rule, "add_to", add_to)
        return keys

    return spoil


def _prediction(name: str) -> Spoil:
    def spoil(monkeypatch: pytest.MonkeyPatch, llm: LLM, text: list[int]) -> dict[str, Any]:
        def fail(*arguments: Any) -> None:
            raise MemoryError("a prediction")

        monkeypatch.setattr(PredictionCursor, name, fail)
        return {"prediction": text}

    return spoil


FAULTS: dict[str, Spoil] = {
    "a grammar off the text": _off_the_text,
    "a grammar moved back": _moved_back,
    "nodes of a grammar": _state("allowed_nodes"),
    "masks of a grammar": _state("mask"),
    "what a proposer asks": _state("mask_after"),
    "forced tokens": _state("forced"),
    "a processor": _processor,
    "bad words": _rule(BadWordsRule, bad_words=["zzzz qqqq"]),
    "penalties": _rule(PenaltyRule, presence_penalty=1e-9),
    "a prediction": _prediction("draft"),
    "following a prediction": _prediction("advance"),
    "learning of a prediction": _prediction("observe"),
}
