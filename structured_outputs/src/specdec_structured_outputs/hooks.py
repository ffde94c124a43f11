"""Registers the package's part of specdec."""

from __future__ import annotations

from specdec import hookimpl
from specdec.interfaces import Part
from specdec_structured_outputs.compiler import LlguidanceGrammars


@hookimpl
def specdec_register_parts() -> type[Part]:
    """Return the part `structured_outputs`."""
    return LlguidanceGrammars
