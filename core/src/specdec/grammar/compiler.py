"""Makes the grammars of `structured_outputs` for one target."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from specdec.config import notice
from specdec.errors import ConfigError
from specdec.grammar.source import grammar_of
from specdec.grammar.state import GrammarState
from specdec.grammar.trial import INSTALL, warnings_of
from specdec.grammar.vocabulary import Vocabulary, vocabulary_of
from specdec.interfaces.target import TargetInfo
from specdec.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_LIMITS: dict[str, Any] = {"max_lexer_states": 50_000, "verbose_errors": False}
"""A lexer's state takes 1 to 2 kB; what a mask may cost is limited by the library."""


class GrammarFactory:
    """Makes the grammar state of each sample; may be called from several threads.

    No two samples share a compiled grammar: an error in one, or the memory that it takes, is that sample's alone.

    Args:
        info: facts about the target.
        tokenizer: the target's tokenizer, if it has one.
    """

    def __init__(self, info: TargetInfo, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self._info = info
        self._tokenizer = tokenizer
        self._ends = frozenset(end for end in info.eos_token_ids if 0 <= end < info.vocab_size)
        self._vocabulary: Vocabulary | None = None
        self._compiled: LLTokenizer | None = None
        self._making = threading.Lock()

    def make(self, params: StructuredOutputsParams) -> GrammarState:
        """Return the grammar state of a sample without tokens.

        Raises:
            ConfigError: if llguidance is not installed, the target has no tokenizer or end-of-text id, or the grammar is
                invalid or takes too much time or memory.
        """
        try:
            import llguidance  # noqa: F401  # whether it is there
        except ImportError as error:
            raise ConfigError(INSTALL) from error
        tokens, grammar = self._tokens(), grammar_of(params)
        matcher = compiled(tokens, grammar, params.kind)
        again = partial(new_matcher, tokens, grammar)
        assert self._vocabulary is not None
        return GrammarState(matcher, self._info.vocab_size, self._ends, again, self._vocabulary.spell)

    def _tokens(self) -> LLTokenizer:
        if self._tokenizer is None:
            raise ConfigError("SamplingParams: structured_outputs needs a tokenizer; pass tokenizer=")
        if not self._ends:
            raise ConfigError(
                "SamplingParams: structured_outputs needs an end-of-text id to end a text with, and the target has none; "
                "set eos_token_id in its configuration or eos_token in its tokenizer"
            )
        with self._making:
            if self._compiled is None:
                self._vocabulary = vocabulary_of(self._tokenizer, self._info.vocab_size, sorted(self._ends))
                self._compiled = self._vocabulary.compiled()
            return self._compiled


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
