"""What a parser finds in a model's text, in the order of the text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """A piece of the content."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """A piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True)
class CallStart:
    """A call of a tool begins."""

    index: int
    """Which call of the message, from 0."""
    name: str


@dataclass(frozen=True)
class CallArguments:
    """A piece of the arguments of a call; all pieces of one call make up JSON text."""

    index: int
    text: str


Event = Text | Reasoning | CallStart | CallArguments
