"""Registers the package's parts of specdec."""

from __future__ import annotations

from specdec import hookimpl
from specdec.interfaces import Part
from specdec_adaptive.adaptive_depth import AdaptiveDepth
from specdec_adaptive.expected_tokens import MeasuredExpectations


@hookimpl
def specdec_register_parts() -> list[type[Part]]:
    """Return the parts `draft_depth` and `expected_tokens`."""
    return [AdaptiveDepth, MeasuredExpectations]
