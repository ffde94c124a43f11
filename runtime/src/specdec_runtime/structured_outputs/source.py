"""Writes the constraints of `structured_outputs` as grammars of llguidance."""

from __future__ import annotations

import json
import re

from specdec import ConfigError, StructuredOutputsParams
from specdec_runtime.structured_outputs.schema import BOUNDED, json_grammar, lark_grammar, portable
from specdec_runtime.structured_outputs.tag import tag_grammar

_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_UNICODE = re.compile(r"\\u([0-9a-fA-F]{4})")


def grammar_of(params: StructuredOutputsParams) -> str:
    """Return a constraint as a grammar of llguidance.

    Raises:
        ConfigError: if it has no such form.
    """
    schema = {"type": "object"} if params.json_object else params.json_schema
    if schema is not None:
        return json_grammar(schema, **(_COMPACT if params.disable_any_whitespace else BOUNDED))
    if params.choice is not None:
        return lark_grammar("start: CHOICE\nCHOICE: " + " | ".join(map(quoted, params.choice)))
    if params.structural_tag is not None:
        return tag_grammar(params.structural_tag, lark_of)
    from llguidance import regex_to_lark

    if params.regex is not None:
        return lark_grammar(f"start: /{regex_to_lark(portable(params.regex), '')}/")
    assert params.grammar is not None
    return lark_grammar(lark_of(params.grammar))


def quoted(text: str) -> str:
    """Return a text as a string of Lark."""
    return json.dumps(text, ensure_ascii=False)


def lark_of(grammar: str) -> str:
    """Return a grammar in EBNF (GBNF form) in Lark's form; one in Lark's form as it is.

    Raises:
        ConfigError: saying what cannot be read.
    """
    from llguidance.gbnf_to_lark import any_to_lark, is_lark_syntax

    if is_lark_syntax(grammar):
        return grammar
    try:
        lark = any_to_lark(_UNICODE.sub(_character, grammar))
    except Exception as error:  # the library raises plain ones
        raise ConfigError(
            f"SamplingParams: structured_outputs 'grammar' cannot be compiled: {error}"
        ) from None
    has_rules = re.search(r"^(?!start\b)[a-z_]\w*:", lark, re.M) or len(re.findall(r"\bstart\b", lark)) > 1
    if not has_rules:  # it is one regular expression, in which no part takes what the next one needs
        lark = re.sub(r"^start:", "start: START\nSTART:", lark, flags=re.M)
    return lark


def _character(found: re.Match[str]) -> str:
    code = int(found[1], 16)
    return chr(code) if code > 0x7F and not 0xD800 <= code < 0xE000 else f"\\x{code:02x}"
