"""What a grammar may cost: along a draft it ends the draft, for the text itself the request."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from llguidance import LLMatcher
from speccheck.grammars import CHARACTERS, compiled, state_of, tokens_of_words

from specdec import ConfigError
from specdec_runtime.structured_outputs import compiler
from specdec_runtime.structured_outputs.spellings import Spellings
from specdec_runtime.structured_outputs.state import MatcherState
from specdec_runtime.structured_outputs.vocabulary import Vocabulary


def test_work_that_is_too_much_is_an_error_of_that_text_alone(monkeypatch) -> None:
    """Copies of a matcher would share a lexer and its errors; what a proposer asks costs its own answer."""
    monkeypatch.setitem(compiler._LIMITS, "max_lexer_states", 36)
    begun = state_of({"regex": "[a-l]*a[a-l]{40}"})
    path = [ord("a")] * 500
    logits = torch.zeros(1, len(CHARACTERS))
    other, asked = begun.begin(), begun.begin()
    other.advance(path[:1])
    allowed = begun.allowed_nodes(
        path, None
    )  # raises nothing, nor what proposers ask: a text may never go there
    assert 0 < sum(allowed) < len(path)
    assert allowed == sorted(allowed, reverse=True)
    assert not asked.mask_after(path).any()
    for state in (begun, asked):
        state.mask(logits, [], None)
        assert logits.isfinite().sum() == 12
        assert not any(state.allowed_nodes([ord("b")], None)), "nothing is looked at ahead for some tokens"
    begun.advance(path)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"too much work for this text: .*: make it simpler"):
            begun.mask(logits, [], None)
    other.mask(logits, [], None)
    assert logits[0].isfinite().nonzero()[:, 0].tolist() == [*range(ord("a"), ord("m"))]


def test_what_was_too_much_ahead_is_looked_at_again_after_some_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time after four times as many, so that it never costs much; the text has its masks all the while."""
    monkeypatch.setitem(compiler._LIMITS, "max_lexer_states", 40)
    state = state_of({"regex": "b*(a[a-l]{40}[a-l]*)?"})
    ahead, draws, pauses = [ord("a")] * 60, [ord("b")], []
    for place in range(150):
        logits = torch.zeros(2, len(CHARACTERS))
        allowed = sum(state.allowed_nodes(ahead, None))
        if allowed:
            pauses.append(place)
        else:
            state.mask(logits, draws, None)
            assert logits[0].isfinite().sum() == 3, "a, b and the end"
        state.advance(draws)
    assert pauses == [0, 16, 80]


def test_rows_behind_what_cannot_be_followed_allow_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tree too: its other branches end with the one that is too much."""
    monkeypatch.setitem(compiler._LIMITS, "max_lexer_states", 36)
    state: MatcherState = state_of({"regex": "[a-l]*a[a-l]{40}"})
    nodes = [ord("a")] * 30 + [ord("b"), ord("z")]
    parents = [*range(-1, 29), -1, -1]
    logits = torch.zeros(len(nodes) + 1, len(CHARACTERS))
    state.mask(logits, nodes, parents)
    num_followed = int(logits.isfinite().any(1).sum())
    assert 1 < num_followed < 31
    assert logits[:num_followed].isfinite().any(1).all()
    assert not logits[num_followed:].isfinite().any()


class Counting:
    """A matcher, and how often it was asked for the forced text."""

    def __init__(self, inner: LLMatcher) -> None:
        self._inner, self.num_asked = inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def compute_ff_bytes(self) -> bytes:
        self.num_asked += 1
        return self._inner.compute_ff_bytes()


def test_a_long_forced_text_is_found_once() -> None:
    """Finding it takes as long as it is, and every drafted token asks for it."""
    words = ["x", "y", "<end>"]
    tokens, vocabulary = tokens_of_words(words), Vocabulary([b"x", b"y", b"<end>"], [2])
    matcher: Any = Counting(compiled({"regex": "x{3000}y"}, tokens))
    state = MatcherState(matcher, len(words), frozenset({2}), lambda: matcher, vocabulary, Spellings())
    for _ in range(50):
        assert state.forced(8) == [0] * 8
        state.advance([0])
    assert matcher.num_asked == 1
    state.advance([0] * 2950)
    assert state.forced(8) == [1, 2]
