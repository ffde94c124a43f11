"""Compiles the grammars of `structured_outputs`. Does not import torch, so that the process that compiles starts quickly."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from specdec.errors import ConfigError
from specdec.grammar.language import can_end
from specdec.grammar.rewriting import rewritten_regex, rewritten_schema, rewritten_tag
from specdec.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    import xgrammar

_ANY_OBJECT = '{"type": "object"}'
_PLACE_IN_LIBRARY = re.compile(r"^\[[\d:]+\] \S+:\d+: ")


def compile_grammar(
    compiler: xgrammar.GrammarCompiler, params: StructuredOutputsParams
) -> xgrammar.CompiledGrammar:
    """Return a compiled grammar.

    Raises:
        ConfigError: if it is invalid, cannot be enforced or allows no text.
    """
    try:
        compiled = _compile(compiler, params)
        is_able = can_end(str(compiled.grammar))
    except ConfigError:
        raise
    except (RuntimeError, ValueError, TypeError, RecursionError) as error:
        reason = _PLACE_IN_LIBRARY.sub("", str(error).strip().splitlines()[-1])
        raise ConfigError(
            f"SamplingParams: structured_outputs {params.kind!r} cannot be compiled: {reason}"
        ) from error
    if not is_able:
        raise ConfigError(
            f"SamplingParams: structured_outputs {params.kind!r} allows no text: every rule or schema that it "
            "begins with leads back to itself; give one that can end"
        )
    return compiled


def _compile(compiler: xgrammar.GrammarCompiler, params: StructuredOutputsParams) -> xgrammar.CompiledGrammar:
    # xgrammar's built-in JSON grammar also accepts top-level arrays, and whitespace everywhere.
    schema = _ANY_OBJECT if params.json_object else params.json_schema
    if schema is not None:
        text = json.dumps(rewritten_schema(schema))
        return compiler.compile_json_schema(text, any_whitespace=not params.disable_any_whitespace)
    if params.regex is not None:
        return compiler.compile_regex(rewritten_regex(params.regex))
    if params.choice is not None:
        alternatives = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in params.choice)
        return compiler.compile_grammar(f"root ::= {alternatives}")
    if params.structural_tag is not None:
        return compiler.compile_structural_tag(json.dumps(rewritten_tag(params.structural_tag)))
    assert params.grammar is not None
    return compiler.compile_grammar(params.grammar)
