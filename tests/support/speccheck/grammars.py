"""Grammars over single characters: which texts they allow, and texts drawn from them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from specdec import StructuredOutputsParams
from specdec_runtime.structured_outputs.compiler import compiled as compile_grammar
from specdec_runtime.structured_outputs.source import grammar_of
from specdec_runtime.structured_outputs.state import MatcherState
from specdec_runtime.structured_outputs.vocabulary import Vocabulary

CHARACTERS = [*map(chr, range(128)), *"é٣²日😀\u2028\uff5c\u2581", "<end>"]
END = len(CHARACTERS) - 1
_CLOSING, _TELLING = set('"}]>'), set('ab"\\,:{[\n\t01.-x</')


def tokens_of_words(words: Sequence[str]) -> LLTokenizer:
    """The vocabulary of these words, of which the last ends a text."""
    return Vocabulary([word.encode() for word in words], [len(words) - 1]).compiled()


TOKENS = tokens_of_words(CHARACTERS)


def compiled(keys: Mapping[str, Any], tokens: LLTokenizer = TOKENS) -> LLMatcher:
    params = StructuredOutputsParams(**keys)
    return compile_grammar(tokens, grammar_of(params), params.kind)


def state_of(keys: Mapping[str, Any], words: Sequence[str] = CHARACTERS) -> MatcherState:
    """The state of a text that has not begun, over these words."""
    tokens = tokens_of_words(words)

    def make() -> LLMatcher:
        return compiled(keys, tokens)

    return MatcherState(make(), len(words), frozenset({len(words) - 1}), make)


def accepts(grammar: LLMatcher, text: str) -> bool:
    matcher = grammar.deep_copy()
    ids = [CHARACTERS.index(char) for char in text]
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def accepts_value(grammar: LLMatcher, value: Any) -> bool:
    return any(accepts(grammar, json.dumps(value, ensure_ascii=is_ascii)) for is_ascii in (True, False))


def sampled(grammar: LLMatcher, seed: int, count: int, *, length: int = 40) -> list[str]:
    """Texts drawn at random that the grammar allows, at most `count`; those that do not end in time are left out."""
    source = random.Random(seed)
    texts = [_walk(grammar, source, length) for _ in range(count)]
    return [text for text in texts if text is not None]


def _walk(grammar: LLMatcher, source: random.Random, length: int) -> str | None:
    matcher, text = grammar.deep_copy(), ""
    for place in range(8 * length):
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        ids = np.flatnonzero(np.unpackbits(bits, bitorder="little")[: len(CHARACTERS)]).tolist()
        if END in ids and (place > length or source.random() < 0.4):
            return text
        ids = [i for i in ids if i != END] or ids
        wanted = _CLOSING if place > length else _TELLING if source.random() < 0.4 else set(CHARACTERS)
        chosen = source.choice([i for i in ids if CHARACTERS[i] in wanted] or ids)
        if chosen == END:
            return text
        assert matcher.consume_token(chosen)
        text += CHARACTERS[chosen]
    return None
