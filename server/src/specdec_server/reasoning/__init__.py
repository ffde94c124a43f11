"""Parsers that tell what a model thinks from what it answers."""

from specdec_server.reasoning.parser import ReasoningParser

__all__ = ["ReasoningParser"]
