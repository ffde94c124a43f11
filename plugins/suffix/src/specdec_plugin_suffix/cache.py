"""What the method needs of suffix trees, and which implementation of it runs."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Protocol

from specdec_plugin_suffix.request import Rules

logger = logging.getLogger("specdec")


@dataclass(frozen=True, slots=True)
class SuffixDraft:
    """A chain or tree of `N` tokens after a text, parents first."""

    token_ids: list[int]
    """`[N]` tokens."""
    parents: list[int]
    """`[N]` indices of their parents; -1 for the end of the text."""
    probs: list[float]
    """`[N]` probabilities of the paths that end with them, by counts."""


EMPTY = SuffixDraft([], [], [])


class SuffixCache(Protocol):
    """A suffix tree for each running request, and a global one of the responses of finished ones.

    `reference` specifies its drafts. Responses are entered one after another and leave in the same order.
    """

    def __len__(self) -> int:
        """Return the number of responses in the global tree."""

    def start_request(self, request_id: str) -> None:
        """Begin a request's tree, without tokens."""

    def stop_request(self, request_id: str) -> None:
        """Drop a request's tree."""

    def append(self, request_id: str, token_ids: list[int]) -> None:
        """Append tokens to a request's text."""

    def speculate(self, request_id: str, max_nodes: int, rules: Rules) -> SuffixDraft:
        """Return a draft of at most `max_nodes` tokens (1 or more) after a request's text."""

    def append_response(self, token_ids: list[int], *, is_first: bool, is_last: bool) -> None:
        """Append tokens to a response: a new one with `is_first`, else the newest, which grows no more after `is_last`."""

    def evict_response(self) -> None:
        """Remove the oldest response, which grows no more."""


@cache
def has_arctic() -> bool:
    """Return whether `arctic-inference` is installed and can be imported; found out once."""
    return find_arctic()


def find_arctic() -> bool:
    """Find out whether `arctic-inference` is installed and can be imported; log a warning if it is and cannot."""
    if find_spec("arctic_inference") is None:
        return False
    try:
        import_module("arctic_inference.suffix_decoding")
    except ImportError as error:
        logger.warning(
            "suffix: arctic-inference is installed but cannot be imported (%s); specdec's own suffix trees run", error
        )  # fmt: skip
        return False
    return True


def implementation() -> str:
    """Return which suffix trees run, for logs and `specdec doctor`."""
    if has_arctic():
        return f"suffix trees of arctic-inference {version('arctic-inference')}"
    if import_module("specdec_plugin_suffix.jit").IS_COMPILED:
        return "specdec's own suffix trees, compiled by numba"
    return "specdec's own suffix trees in plain Python, which is slow: numba is not installed"


def make_cache(depth: int) -> SuffixCache:
    """Return empty trees: those of `arctic-inference` where it is installed, else our own.

    Args:
        depth: the longest match and draft together, in tokens.
    """
    module, name = ("arctic", "ArcticCache") if has_arctic() else ("suffix_tree", "TreeCache")
    made: SuffixCache = getattr(import_module(f"specdec_plugin_suffix.{module}"), name)(depth)
    return made


def compile_all(depth: int) -> None:
    """Use trees of its own in every way, so that what is compiled is compiled now, and not while a request waits."""
    cache, token_ids = make_cache(depth), [*range(1024)]  # more than arrays have room for at first
    cache.start_request("")
    cache.append("", token_ids)
    cache.speculate("", 1, Rules(1.0, 0.1, is_tree=False))
    cache.append_response(token_ids, is_first=True, is_last=True)
    cache.evict_response()
