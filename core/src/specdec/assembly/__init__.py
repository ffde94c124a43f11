"""Builds an engine: loads target, proposer and sampler, checks that they fit, and connects them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.assembly.build import BuiltEngine, assemble, make_sampler
    from specdec.assembly.opening import lines_for, no_states, open_speculation
    from specdec.assembly.ranks import TensorParallel

__all__ = [
    "BuiltEngine",
    "TensorParallel",
    "assemble",
    "lines_for",
    "make_sampler",
    "no_states",
    "open_speculation",
]

__getattr__ = lazily(__name__)
