"""The messages between a comparison and its workers: one JSON object per line. Standard library only."""

from __future__ import annotations

from typing import TypedDict

Settings = dict[str, object]
"""One configuration of an engine, with the engine's own keys."""

Counters = dict[str, int]
"""Totals since the engine started; empty if the engine has no counters."""


class Load(TypedDict):
    """First line to a worker: what to load."""

    config: str
    model: str
    dtype: str
    max_model_len: int
    max_num_seqs: int
    settings: Settings


class Ready(TypedDict):
    """First line from a worker after loading: versions, threads and load time."""

    config: str
    versions: dict[str, str]
    num_threads: int
    load_s: float


class Request(TypedDict):
    """One batch to generate, greedily and past any end-of-text token."""

    config: str
    prompts: list[list[int]]
    max_tokens: int


class Reply(TypedDict):
    """The new tokens of every prompt, and the time from token ids in to token ids out."""

    token_ids: list[list[int]]
    wall_s: float
    counters: Counters


class Failure(TypedDict):
    """Sent instead of any other answer; the worker ends after it."""

    error: str
