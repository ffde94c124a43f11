"""Makes the grammars of `structured_outputs` for one target."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase

from specdec.errors import ConfigError
from specdec.grammar.compiling import json_of
from specdec.grammar.state import GrammarState
from specdec.grammar.trial import GrammarTrials
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
        self._trials: GrammarTrials | None = None
        self._making = threading.Lock()
        self._known: OrderedDict[bytes, xgrammar.CompiledGrammar] = OrderedDict()
        self._num_bytes = 0

    def make(self, params: StructuredOutputsParams) -> GrammarState:
        """Return the grammar state of a sample without tokens.

        Raises:
            ConfigError: if xgrammar is not installed, the target has no tokenizer or end-of-text id, or the grammar is invalid
                or takes too long to compile.
        """
        try:
            import xgrammar
        except ImportError as error:
            raise ConfigError(_INSTALL) from error
        key = hashlib.sha256(json_of(params).encode()).digest()
        with self._making:
            compiled = self._known.get(key)
            if compiled is not None:
                self._known.move_to_end(key)
        if compiled is None:
            compiler, trials = self._tools()
            compiled = trials.run(params).compile(compiler)
            self._keep(key, compiled)
        return GrammarState(xgrammar.GrammarMatcher(compiled), self._info.vocab_size)

    def close(self) -> None:
        """End the processes that try grammars."""
        with self._making:
            if self._trials is not None:
                self._trials.close()

    def _tools(self) -> tuple[xgrammar.GrammarCompiler, GrammarTrials]:
        import xgrammar

        if self._tokenizer is None:
            raise ConfigError("SamplingParams: structured_outputs needs a tokenizer; pass tokenizer=")
        ends = list(self._info.eos_token_ids)
        if not ends:
            raise ConfigError(
                "SamplingParams: structured_outputs needs an end-of-text id to end a text with, and the target has none; "
                "set eos_token_id in its configuration or eos_token in its tokenizer"
            )
        with self._making:
            if self._compiler is None or self._trials is None:
                facts = xgrammar.TokenizerInfo.from_huggingface(
                    self._tokenizer, vocab_size=self._info.vocab_size, stop_token_ids=ends
                )
                self._compiler = xgrammar.GrammarCompiler(facts, max_threads=2, cache_enabled=False)
                self._trials = GrammarTrials(facts.serialize_json())
            return self._compiler, self._trials

    def _keep(self, key: bytes, compiled: xgrammar.CompiledGrammar) -> None:
        """Cache a grammar; those used longest ago make room."""
        with self._making:
            if key not in self._known:
                self._num_bytes += compiled.memory_size_bytes
            self._known[key] = compiled
            while self._num_bytes > _CACHE_BYTES and len(self._known) > 1:
                self._num_bytes -= self._known.popitem(last=False)[1].memory_size_bytes
