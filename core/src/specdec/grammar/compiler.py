"""Compiles the grammars of `structured_outputs`."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase

from specdec.errors import ConfigError
from specdec.grammar.language import can_end
from specdec.grammar.schema import check_schema
from specdec.grammar.state import GrammarState
from specdec.interfaces.target import TargetInfo
from specdec.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    import xgrammar

_ANY_OBJECT = '{"type": "object"}'
_PLACE_IN_LIBRARY = re.compile(r"^\[[\d:]+\] \S+:\d+: ")
_CACHE_BYTES = 256 * 1024 * 1024
_MAX_KNOWN = 4096
"""The most grammars remembered as already checked."""
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
        self._known: dict[bytes, None] = {}

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
        try:
            key = hashlib.sha256(params.model_dump_json().encode()).digest()
            if key not in self._known and params.json_schema is not None:
                check_schema(params.json_schema)
            compiled = _compile(self._compiler, params)
        except ConfigError:
            raise
        except (RuntimeError, ValueError, TypeError, RecursionError) as error:
            reason = _PLACE_IN_LIBRARY.sub("", str(error).strip().splitlines()[-1])
            raise ConfigError(
                f"SamplingParams: structured_outputs {params.kind!r} cannot be compiled: {reason}"
            ) from error
        if key not in self._known:
            if not can_end(str(compiled.grammar)):
                raise ConfigError(
                    f"SamplingParams: structured_outputs {params.kind!r} allows no text: every rule or schema that it "
                    "begins with leads back to itself; give one that can end"
                )
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = None
        return GrammarState(xgrammar.GrammarMatcher(compiled), self._info.vocab_size)


def _compile(compiler: xgrammar.GrammarCompiler, params: StructuredOutputsParams) -> xgrammar.CompiledGrammar:
    # xgrammar's built-in JSON grammar also accepts top-level arrays, and whitespace everywhere.
    schema = _ANY_OBJECT if params.json_object else params.json_schema
    if schema is not None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return compiler.compile_json_schema(text, any_whitespace=not params.disable_any_whitespace)
    if params.regex is not None:
        return compiler.compile_regex(params.regex)
    if params.choice is not None:
        alternatives = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in params.choice)
        return compiler.compile_grammar(f"root ::= {alternatives}")
    if params.structural_tag is not None:
        tag = params.structural_tag
        return compiler.compile_structural_tag(tag if isinstance(tag, str) else json.dumps(tag))
    assert params.grammar is not None
    return compiler.compile_grammar(params.grammar)
