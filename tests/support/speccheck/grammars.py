"""Grammars over single characters: which texts they allow, and texts drawn from them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xgrammar

from specdec.grammar.compiling import try_grammar
from specdec.structured_outputs import StructuredOutputsParams

CHARACTERS = [*map(chr, range(128)), *"é٣²日😀\u2028\uff5c\u2581", "<end>"]
END = len(CHARACTERS) - 1
FACTS = xgrammar.TokenizerInfo(CHARACTERS, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[END])
_COMPILER = xgrammar.GrammarCompiler(FACTS, max_threads=1)
_CLOSING, _TELLING = set('"}]>'), set('ab"\\,:{[\n\t01.-x</')


def compiled(keys: Mapping[str, Any]) -> xgrammar.CompiledGrammar:
    return try_grammar(_COMPILER, StructuredOutputsParams(**keys))[1]


def accepts(grammar: xgrammar.CompiledGrammar, text: str) -> bool:
    matcher = xgrammar.GrammarMatcher(grammar)
    return bool(matcher.accept_string(text) and matcher.accept_token(END))


def accepts_value(grammar: xgrammar.CompiledGrammar, value: Any) -> bool:
    return any(accepts(grammar, json.dumps(value, ensure_ascii=is_ascii)) for is_ascii in (True, False))


def sampled(grammar: xgrammar.CompiledGrammar, seed: int, count: int, *, length: int = 40) -> list[str]:
    """Texts drawn at random that the grammar allows, at most `count`; those that do not end in time are left out."""
    source = random.Random(seed)
    texts = [_walk(grammar, source, length) for _ in range(count)]
    return [text for text in texts if text is not None]


def _walk(grammar: xgrammar.CompiledGrammar, source: random.Random, length: int) -> str | None:
    matcher, text = xgrammar.GrammarMatcher(grammar), ""
    bits = torch.zeros(1, -(-len(CHARACTERS) // 32), dtype=torch.int32)
    for place in range(8 * length):
        matcher.fill_next_token_bitmask(bits, 0)
        ids = np.flatnonzero(
            np.unpackbits(bits.numpy().view(np.uint8), bitorder="little")[: len(CHARACTERS)]
        ).tolist()
        if END in ids and (place > length or source.random() < 0.4):
            return text
        ids = [i for i in ids if i != END] or ids
        wanted = _CLOSING if place > length else _TELLING if source.random() < 0.4 else set(CHARACTERS)
        chosen = source.choice([i for i in ids if CHARACTERS[i] in wanted] or ids)
        if chosen == END:
            return text
        assert matcher.accept_token(chosen)
        text += CHARACTERS[chosen]
    return None
