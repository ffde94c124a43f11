"""A report as one page for a browser."""

from specdec.bench.page.render import render

__all__ = ["render"]
