"""Renders a report as one HTML page."""

from specdec_bench.page.render import render

__all__ = ["render"]
