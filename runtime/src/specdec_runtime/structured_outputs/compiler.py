"""Compiles the constraints of `structured_outputs` for one target."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from specdec import ConfigError, StructuredOutputsParams
from specdec.config import notice
from specdec.interfaces import Grammars, TargetInfo
from specdec_runtime.structured_outputs.source import grammar_of
from specdec_runtime.structured_outputs.spellings import Spellings
from specdec_runtime.structured_outputs.state import MatcherState
from specdec_runtime.structured_outputs.trial import warnings_of
from specdec_runtime.structured_outputs.vocabulary import Vocabulary, vocabulary_of

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_LIMITS: dict[str, Any] = {"max_lexer_states": 50_000, "verbose_errors": False}
"""A lexer's state takes 1 to 2 kB; what a mask may cost is limited by the library."""


class LlguidanceGrammars(Grammars):
    """Compiles grammars with llguidance.

    No two samples share a compiled grammar: an error in one, or the memory that it takes, is that sample's alone. What they
    share is how the target spells forced texts, which is limited in size and used for drafts.
    """

    name = "structured_outputs"

    def __init__(self) -> None:
        self._vocabulary: tuple[Vocabulary, LLTokenizer, Spellings] | None = None
        self._making = threading.Lock()

    def compile(
        self, params: StructuredOutputsParams, info: TargetInfo, tokenizer: PreTrainedTokenizerBase
    ) -> MatcherState:
        """Return the state of a request's grammar, before the first token; several threads may call it.

        Raises:
            ConfigError: if the target has no end-of-text id, or the constraint is invalid or takes too much time or memory.
        """
        ends = frozenset(end for end in info.eos_token_ids if 0 <= end < info.vocab_size)
        if not ends:
            raise ConfigError(
                "SamplingParams: structured_outputs needs an end-of-text id to end a text with, and the target has none; "
                "set eos_token_id in its configuration or eos_token in its tokenizer"
            )
        with self._making:
            if self._vocabulary is None:
                made = vocabulary_of(tokenizer, info.vocab_size, sorted(ends))
                self._vocabulary = made, made.compiled(), Spellings()
            vocabulary, tokens, spellings = self._vocabulary
        grammar = grammar_of(params)
        matcher = compiled(tokens, grammar, params.kind)
        again = partial(new_matcher, tokens, grammar)
        return MatcherState(matcher, info.vocab_size, ends, again, vocabulary, spellings)


def compiled(tokens: LLTokenizer, grammar: str, kind: str) -> LLMatcher:
    """Return a matcher at the start of a grammar that was tried before in a process of its own.

    Args:
        tokens: the vocabulary.
        grammar: in llguidance's form.
        kind: of the constraint, for errors.

    Raises:
        ConfigError: if it is invalid, allows no text, or takes too much time or memory.
    """
    try:
        warnings = warnings_of(grammar)
    except ConfigError as error:
        raise ConfigError(f"SamplingParams: structured_outputs {kind!r} {error}") from None
    for warning in warnings:
        notice(
            f"structured_outputs:{warning}", f"a schema that is 'lenient' is not enforced in full: {warning}"
        )
    matcher = new_matcher(tokens, grammar)
    matcher.compute_bitmask()  # the first costs most, and what does not bear it is refused here
    if matcher.is_error():
        raise ConfigError(
            f"SamplingParams: structured_outputs {kind!r} cannot be compiled: {matcher.get_error():.300}"
        )
    return matcher


def new_matcher(tokens: LLTokenizer, grammar: str) -> LLMatcher:
    """Return a matcher at the start of a grammar that is known to compile."""
    from llguidance import LLMatcher, LLParserLimits

    return LLMatcher(tokens, grammar, log_level=0, limits=LLParserLimits(**_LIMITS))
