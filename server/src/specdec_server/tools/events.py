"""Events that a parser emits for a model's text, in the order of the text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """A piece of the content."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """A piece of the reasoning before the answer."""

    text: str


@dataclass(frozen=True)
class CallStart:
    """Start of a tool call."""

    index: int
    """Index of the call in the message, from 0."""
    name: str


@dataclass(frozen=True)
class CallArguments:
    """A piece of a call's arguments; the pieces of one call concatenate to JSON text."""

    index: int
    text: str


Event = Text | Reasoning | CallStart | CallArguments
