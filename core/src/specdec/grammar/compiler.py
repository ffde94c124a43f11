"""Compiles the grammars of `structured_outputs`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase

from specdec.errors import ConfigError
from specdec.grammar.compiling import compile_grammar
from specdec.grammar.state import GrammarState
from specdec.interfaces.target import TargetInfo
from specdec.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    import xgrammar

_CACHE_BYTES = 256 * 1024 * 1024
_INSTALL = 'structured_outputs needs xgrammar: pip install "specdec-core[grammar]"'


class GrammarFactory:
    """Makes the grammar state of each sample; may be called from several threads. Compiled grammars are cached.

    Args:
        info: facts about the target.
        tokenizer: the target's tokenizer, if it has one.
    """

    def __init__(self, info: TargetInfo, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self._info = info
        self._tokenizer = tokenizer
        self._compiler: xgrammar.GrammarCompiler | None = None
        self._making = threading.Lock()

    def make(self, params: StructuredOutputsParams) -> GrammarState:
        """Return the grammar state of a sample without tokens.

        Raises:
            ConfigError: if xgrammar is not installed, the target has no tokenizer or end-of-text id, or the grammar is invalid.
        """
        try:
            import xgrammar
        except ImportError as error:
            raise ConfigError(_INSTALL) from error
        if self._tokenizer is None:
            raise ConfigError("SamplingParams: structured_outputs needs a tokenizer; pass tokenizer=")
        ends = list(self._info.eos_token_ids)
        if not ends:
            raise ConfigError(
                "SamplingParams: structured_outputs needs an end-of-text id to end a text with, and the target has none; "
                "set eos_token_id in its configuration or eos_token in its tokenizer"
            )
        with self._making:
            if self._compiler is None:
                facts = xgrammar.TokenizerInfo.from_huggingface(
                    self._tokenizer,
                    vocab_size=self._info.vocab_size,
                    stop_token_ids=ends,
                )
                self._compiler = xgrammar.GrammarCompiler(
                    facts, max_threads=2, cache_limit_bytes=_CACHE_BYTES
                )
        compiled = compile_grammar(self._compiler, params)
        return GrammarState(xgrammar.GrammarMatcher(compiled), self._info.vocab_size)
