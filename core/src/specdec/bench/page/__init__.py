"""Renders a report as one HTML page."""

from specdec.bench.page.render import render

__all__ = ["render"]
