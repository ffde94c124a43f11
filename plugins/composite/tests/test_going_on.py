"""A batch behind drafted tokens is the one that a proposer would get if these were committed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from composite_check import batch_of

from specdec.engine.speculation.plugin_view import EngineDraws
from specdec.interfaces import ProposeBatch
from specdec_plugin_composite.going_on import batch_behind

TEXTS, STARTS = ([1, 2, 3], [4, 5], [6, 1, 2, 3]), (1, 0, 4)
PATHS = ((), (7, 8), (9,))
ROWS = [2, 1, 0, 1]
"""In another order than the batch's, one twice."""


def draws_of(lengths: list[int]) -> EngineDraws:
    """Return the noise of requests with texts of these lengths."""
    rows: list[Any] = [
        SimpleNamespace(seed=40 + row, sample_index=row, num_tokens=n) for row, n in enumerate(lengths)
    ]
    return EngineDraws(rows)


def joined(texts: list[list[int]], starts: tuple[int, ...]) -> ProposeBatch:
    """Return one batch of requests whose tokens from `starts` on are new."""
    alone = [batch_of(text, start, last=(2, 1)) for text, start in zip(texts, starts, strict=True)]
    return replace(
        alone[0],
        request_ids=("a", "b", "c"),
        max_nodes=[8] * 3,
        num_tokens=list(map(len, texts)),
        starts=list(starts),
        counts=[each.counts[0] for each in alone],
        new_token_ids=np.concatenate([each.new_token_ids for each in alone]),
        last_num_drafted=[2] * 3,
        last_num_accepted=[1] * 3,
        draws=draws_of(list(map(len, texts))),
        token_ids_of=lambda row: np.array(texts[row], np.int32),
        allowed_after=lambda row, path: torch.tensor([row, *path]),
    )


@pytest.fixture
def behind() -> ProposeBatch:
    return batch_behind(joined(list(TEXTS), STARTS), PATHS)


def test_the_drafted_tokens_are_the_last_ones_of_each_text(behind: ProposeBatch) -> None:
    wanted = joined([[*text, *path] for text, path in zip(TEXTS, PATHS, strict=True)], STARTS)
    for name in ("request_ids", "num_tokens", "starts", "counts"):
        assert list(getattr(behind, name)) == list(getattr(wanted, name))
    assert behind.new_token_ids.tolist() == wanted.new_token_ids.tolist()
    assert [behind.token_ids(row).tolist() for row in range(3)] == [
        wanted.token_ids(row).tolist() for row in range(3)
    ]
    assert (behind.last_num_drafted, behind.last_num_accepted) == ([0] * 3, [0] * 3)


def test_the_noise_is_that_of_the_positions_behind_them(behind: ProposeBatch) -> None:
    later = draws_of([len(text) + len(path) for text, path in zip(TEXTS, PATHS, strict=True)])
    logits = torch.randn(len(ROWS), 16, generator=torch.Generator().manual_seed(3))
    for depth in (1, 2, 3):
        assert torch.equal(behind.draws.coupled(logits, ROWS, depth), later.coupled(logits, ROWS, depth))
        assert torch.equal(behind.draws.coupled_noise(ROWS, depth, 16), later.coupled_noise(ROWS, depth, 16))
    got, wanted = behind.draws.coupled_keys(ROWS), later.coupled_keys(ROWS)
    for name in ("seeds", "samples", "positions"):
        assert getattr(got, name).tolist() == getattr(wanted, name).tolist()


def test_no_draw_is_that_of_another_node_of_the_joined_draft(behind: ProposeBatch) -> None:
    """Node 0 of a draft behind two tokens is node 2 of what is verified."""
    own, logits = draws_of(list(map(len, TEXTS))), torch.zeros(1, 4096)
    for row, path in enumerate(PATHS):
        for node in (0, 1):
            drawn, q = behind.draws.sample(logits, [row], node)
            wanted, q_wanted = own.sample(logits, [row], len(path) + node)
            assert (drawn.tolist(), q.tolist()) == (wanted.tolist(), q_wanted.tolist())
    drawn, q = behind.draws.sample(logits.expand(3, -1), [2, 1, 0], 1)
    wanted = [behind.draws.sample(logits, [row], 1)[0] for row in (2, 1, 0)]
    assert torch.equal(drawn, torch.cat(wanted))
    assert q.shape == (3, 4096)


def test_a_grammar_is_asked_behind_them(behind: ProposeBatch) -> None:
    asked = [behind.allowed(row, (3, 4)) for row in range(3)]
    assert [each.tolist() for each in asked if each is not None] == [
        [0, 3, 4],
        [1, 7, 8, 3, 4],
        [2, 9, 3, 4],
    ]
    free = replace(joined(list(TEXTS), STARTS), allowed_after=None)
    assert batch_behind(free, PATHS).allowed(1, ()) is None


def test_the_target_lists_no_ids_behind_them() -> None:
    listed: Any = object()  # nobody looks into it
    assert batch_behind(replace(joined(list(TEXTS), STARTS), top_k=listed), PATHS).top_k is None
