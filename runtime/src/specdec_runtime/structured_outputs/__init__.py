"""Structured outputs through llguidance: part `structured_outputs` of specdec."""

from specdec_runtime.structured_outputs.compiler import LlguidanceGrammars
from specdec_runtime.structured_outputs.schema import check_schema, supported_part
from specdec_runtime.structured_outputs.trial import deadline

__all__ = ["LlguidanceGrammars", "check_schema", "deadline", "supported_part"]
