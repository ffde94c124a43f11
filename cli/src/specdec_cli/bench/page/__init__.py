"""Renders a report as one HTML page."""

from specdec_cli.bench.page.render import render

__all__ = ["render"]
