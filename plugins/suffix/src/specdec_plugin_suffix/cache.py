"""What the method needs of suffix trees, and which implementation of it runs."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Protocol

from specdec_plugin_suffix.request import Rules

logger = logging.getLogger("specdec")


class SuffixDraft(Protocol):
    """A draft: `N` tokens, each after its parent."""

    @property
    def token_ids(self) -> list[int]:
        """`[N]` tokens."""

    @property
    def parents(self) -> list[int]:
        """`[N]` indices of their parents, which come first; -1 for the end of the text."""

    @property
    def probs(self) -> list[float]:
        """`[N]` probabilities of the paths that end with them, by counts."""


class SuffixCache(Protocol):
    """A suffix tree for each running request, and a global one of the responses of finished ones.

    `reference` specifies its drafts. Responses are entered one after another and leave in the same order.
    """

    @property
    def num_responses(self) -> int:
        """Number of responses in the global tree."""

    def start_request(self, request_id: str) -> None:
        """Begin a request's tree, without tokens."""

    def stop_request(self, request_id: str) -> None:
        """Drop a request's tree."""

    def append(self, request_id: str, token_ids: list[int]) -> None:
        """Append tokens to a request's text."""

    def speculate(self, request_id: str, max_nodes: int, rules: Rules) -> SuffixDraft:
        """Return a draft of at most `max_nodes` tokens (1 or more) after a request's text."""

    def begin_response(self) -> None:
        """Begin a response; the one before it grows no more."""

    def append_response(self, token_ids: list[int]) -> None:
        """Append tokens to the newest response."""

    def evict_response(self) -> None:
        """Remove the oldest response."""


@cache
def has_arctic() -> bool:
    """Return whether `arctic-inference` is installed."""
    return find_spec("arctic_inference") is not None


def implementation() -> str:
    """Return which suffix trees run, for people."""
    if has_arctic():
        return f"those of arctic-inference {version('arctic-inference')}"
    if import_module("specdec_plugin_suffix.jit").IS_COMPILED:
        return "specdec's own, compiled by numba"
    return "specdec's own in plain Python, which takes about a hundred times as long: numba is not installed"


def make_cache(depth: int) -> SuffixCache:
    """Return empty trees: those of `arctic-inference` where it is installed, else our own, whose drafts are as likely.

    Args:
        depth: the longest match and draft together, in tokens.
    """
    module, name = ("arctic", "ArcticCache") if has_arctic() else ("suffix_tree", "TreeCache")
    made: SuffixCache = getattr(import_module(f"specdec_plugin_suffix.{module}"), name)(depth)
    return made
