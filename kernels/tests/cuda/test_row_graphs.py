"""A function over rows that is recorded: padding, sizes, and what has no recording."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from speccheck.recorder import Rerun

from specdec_kernels.cuda.graphs import RowGraphs

WIDTH, NUM_PLACES = 4, 40


class Store:
    """Writes the sum of both states of a row to its place."""

    def __init__(self, recorder: Rerun | None = None) -> None:
        self.memory = torch.full((NUM_PLACES, WIDTH), -1.0)
        like = torch.zeros(2, WIDTH)
        self.graphs = RowGraphs("rows of a text", self.write, recorder or Rerun(), like, 2)

    def write(self, states: tuple[torch.Tensor, ...], numbers: torch.Tensor) -> None:
        rows, places = numbers
        first, second = (state.index_select(0, rows) for state in states)
        self.memory.index_copy_(0, places, first + second)


@pytest.mark.parametrize(
    ("num_states", "rows"), [(1, [0]), (3, [0, 2]), (5, [4]), (8, [*range(8)]), (7, [6, 1, 0])]
)
def test_rows_go_to_their_places_and_nowhere_else(num_states: int, rows: list[int]) -> None:
    store = Store()
    store.graphs.prepare(8)
    store.memory.fill_(-1.0)
    for seed in range(3):
        states = torch.randn(2, num_states, WIDTH, generator=torch.Generator().manual_seed(seed))
        places = [NUM_PLACES - 1 - row for row in rows]
        assert store.graphs.run((states[0], states[1]), np.array([rows, places]))
        expected = torch.full((NUM_PLACES, WIDTH), -1.0)
        expected[places] = states.sum(0)[rows]
        assert torch.equal(store.memory, expected)
    assert (store.graphs.num_replays, store.graphs.num_recordings) == (3, 4)


def test_more_rows_than_recorded_are_left_to_the_caller() -> None:
    store = Store()
    store.graphs.prepare(4)
    before = store.memory.clone()
    assert not store.graphs.run((torch.ones(5, WIDTH), torch.ones(5, WIDTH)), np.array([[0], [1]]))
    assert torch.equal(store.memory, before)
    assert store.graphs.num_plain == 1


def test_a_device_that_cannot_record(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(Rerun(failure="not permitted"))
    store.graphs.prepare(4)
    assert "rows of a text are not captured in graphs and run operation by operation" in caplog.text
    assert not store.graphs.run((torch.ones(1, WIDTH), torch.ones(1, WIDTH)), np.array([[0], [1]]))
