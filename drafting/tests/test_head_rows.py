"""Requests of a head in a cache with little room."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import torch

from specdec.interfaces import DraftHead, KVCache, LayerShape, ProposeBatch, Runner, TargetInfo
from specdec_drafting.head_rows import HeadRows

BLOCK = 16


def rows_of(num_blocks: int) -> HeadRows:
    """Rows of a head of one stage, in a cache of so many blocks."""
    cache = KVCache(num_blocks * BLOCK, torch.device("cpu"))
    head = Mock(DraftHead, num_stages=1, feature_size=4)
    rows = HeadRows(
        cast(Runner, SimpleNamespace(module=head, dtype=torch.float32, cache=cache)),
        cast(TargetInfo, SimpleNamespace(prefix_block_size=BLOCK)),
        max_len=1000,
    )
    cache.allocate(0, LayerShape(1, 4, 4, torch.float32))
    return rows


def new(request_id: str, num_tokens: int, start: int = 0) -> ProposeBatch:
    """A step that brings a request's tokens from `start` on."""
    batch: Any = SimpleNamespace(
        request_ids=(request_id,), starts=[start], counts=[num_tokens - start], num_tokens=[num_tokens]
    )
    return cast(ProposeBatch, batch)


def test_a_cached_prefix_without_room_is_delivered_again_and_gets_room() -> None:
    rows, text = rows_of(4), np.arange(48, dtype=np.int32)
    first = rows.update(new("first", 48), 0, 0)
    first.num_tokens, first.num_rows = 48, [47]
    rows.pool.publish("first", text)
    assert (
        rows.resume("second", text[:32]) == 0
    )  # three of four blocks belong to a request that does not run now
    second = rows.update(new("second", 32), 0, 0)
    assert not second.is_lost
    assert "first" not in rows.contexts


def test_a_cached_prefix_with_room_is_held() -> None:
    rows, text = rows_of(8), np.arange(48, dtype=np.int32)
    first = rows.update(new("first", 48), 0, 0)
    first.num_tokens, first.num_rows = 48, [47]
    rows.pool.publish("first", text)
    assert rows.resume("second", text[:32]) == 32
    assert not rows.contexts["second"].is_lost


def test_one_that_is_too_long_is_lost_at_once() -> None:
    rows = rows_of(8)
    assert rows.resume("long", np.arange(1000, dtype=np.int32)) == 1000
    assert rows.contexts["long"].is_lost
