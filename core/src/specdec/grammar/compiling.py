"""Compiles the grammars of `structured_outputs`. Does not import torch, so that the process that tries them starts quickly."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from specdec.errors import ConfigError
from specdec.grammar.language import can_end
from specdec.grammar.rewriting import rewritten_regex, rewritten_schema, rewritten_tag
from specdec.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    import xgrammar

_ANY_OBJECT = '{"type": "object"}'
_PLACE_IN_LIBRARY = re.compile(r"^\[[\d:]+\] \S+:\d+: ")


@dataclass(frozen=True)
class GrammarSource:
    """What xgrammar compiles."""

    form: Literal["schema", "regex", "tag", "grammar"]
    text: str
    has_any_whitespace: bool = True
    """Whether JSON may have whitespace anywhere."""

    def compile(self, compiler: xgrammar.GrammarCompiler) -> xgrammar.CompiledGrammar:
        """Return the compiled grammar; raises what xgrammar raises."""
        if self.form == "schema":
            return compiler.compile_json_schema(self.text, any_whitespace=self.has_any_whitespace)
        if self.form == "regex":
            return compiler.compile_regex(self.text)
        if self.form == "tag":
            return compiler.compile_structural_tag(self.text)
        return compiler.compile_grammar(self.text)


def json_of(params: StructuredOutputsParams) -> str:
    """Return a constraint as JSON, with the names of `StructuredOutputsParams`.

    Raises:
        ConfigError: for values that have no JSON form.
    """
    try:
        return json.dumps(params.model_dump(by_alias=True, exclude_none=True), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"SamplingParams: structured_outputs {params.kind!r} cannot be compiled: it is not JSON: {error}"
        ) from None


def try_grammar(
    compiler: xgrammar.GrammarCompiler, params: StructuredOutputsParams
) -> tuple[GrammarSource, xgrammar.CompiledGrammar]:
    """Return a constraint as xgrammar enforces it, and its grammar.

    Raises:
        ConfigError: if it is invalid, cannot be enforced or allows no text.
    """
    try:
        source = _source_of(params)
        compiled = source.compile(compiler)
        is_able = can_end(str(compiled.grammar))
    except ConfigError:
        raise
    except (RuntimeError, ValueError, TypeError, RecursionError, MemoryError) as error:
        told = str(error).strip() or type(error).__name__
        is_large = isinstance(error, MemoryError) or "bad_alloc" in told
        reason = "it takes too much memory: make it simpler" if is_large else told.splitlines()[-1]
        reason = _PLACE_IN_LIBRARY.sub("", reason)
        raise ConfigError(
            f"SamplingParams: structured_outputs {params.kind!r} cannot be compiled: {reason}"
        ) from error
    if not is_able:
        raise ConfigError(
            f"SamplingParams: structured_outputs {params.kind!r} allows no text: every rule or schema that it "
            "begins with leads back to itself; give one that can end"
        )
    return source, compiled


def _source_of(params: StructuredOutputsParams) -> GrammarSource:
    # xgrammar's built-in JSON grammar also accepts top-level arrays, and whitespace everywhere.
    schema = _ANY_OBJECT if params.json_object else params.json_schema
    if schema is not None:
        return GrammarSource(
            "schema", json.dumps(rewritten_schema(schema)), not params.disable_any_whitespace
        )
    if params.regex is not None:
        return GrammarSource("regex", rewritten_regex(params.regex))
    if params.choice is not None:
        alternatives = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in params.choice)
        return GrammarSource("grammar", f"root ::= {alternatives}")
    if params.structural_tag is not None:
        return GrammarSource("tag", json.dumps(rewritten_tag(params.structural_tag)))
    assert params.grammar is not None
    return GrammarSource("grammar", params.grammar)
