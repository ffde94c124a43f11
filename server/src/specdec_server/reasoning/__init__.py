"""Parsers that separate a model's reasoning from its answer."""

from specdec_server.reasoning.parser import ReasoningParser

__all__ = ["ReasoningParser"]
