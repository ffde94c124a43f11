"""Structured outputs through llguidance: part `structured_outputs` of specdec."""

from specdec_grammar.compiler import LlguidanceGrammars
from specdec_grammar.schema import check_schema, supported_part
from specdec_grammar.trial import deadline

__all__ = ["LlguidanceGrammars", "check_schema", "deadline", "supported_part"]
