"""What `adapted` adds in a pass of several requests: to the rows of each adapter, on its own thread, and nothing afterwards."""

from __future__ import annotations

from threading import Thread

import pytest
import torch
from speccheck.models import tiny

from specdec_runtime.interfaces import PackedBatch, Segment
from specdec_runtime.lora import LoadedAdapter, adapted
from specdec_runtime.lora.adapter import LowRank

NUM_ROWS = 7


@pytest.fixture(scope="module")
def model():
    return tiny("llama").requires_grad_(False)


def made(model, seed: int) -> LoadedAdapter:
    generator = torch.Generator().manual_seed(seed)
    maps = {}
    for module in (model.model.layers[0].self_attn.q_proj, model.lm_head):
        down = torch.randn(2, module.in_features, generator=generator)
        maps[module] = LowRank(down, torch.randn(module.out_features, 2, generator=generator), 0.5 + seed)
    return LoadedAdapter(str(seed), maps)


@pytest.fixture
def adapters(model) -> list[LoadedAdapter | None]:
    """Of the rows 0 to 2, 3, 4 to 5 and 6."""
    first, second = made(model, 1), made(model, 2)
    return [first, None, second, first]


def batch(adapters: list[LoadedAdapter | None], logits_rows: torch.Tensor | None = None) -> PackedBatch:
    places = ((0, 3), (3, 1), (4, 2), (6, 1))
    segments = [
        Segment(row, num, 8 * row, 0, adapter=a) for (row, num), a in zip(places, adapters, strict=True)
    ]
    ids = torch.zeros(NUM_ROWS, dtype=torch.int64)
    return PackedBatch(ids, ids, segments, ids, logits_rows, has_adapters=True)


def by_row(adapters: list[LoadedAdapter | None]) -> list[LoadedAdapter | None]:
    return [adapters[place] for place in (0, 0, 0, 1, 2, 2, 3)]


def added(module, owners: list[LoadedAdapter | None], x: torch.Tensor) -> torch.Tensor:
    """Return a map's outputs `[T, out]`, computed row by row."""
    rows = []
    for owner, row in zip(owners, x, strict=True):
        low = None if owner is None else owner.maps[module]
        rows.append(module(row) + (0 if low is None else low.scaling * (low.up @ (low.down @ row))))
    return torch.stack(rows)


@pytest.mark.parametrize("num_dims", [2, 3])
def test_each_adapter_is_added_to_its_own_rows(model, adapters, num_dims: int) -> None:
    module, x = model.model.layers[0].self_attn.q_proj, torch.randn(NUM_ROWS, 32)
    with adapted(model, batch(adapters)):
        found = module(x if num_dims == 2 else x[None])
    torch.testing.assert_close(found.view(NUM_ROWS, -1), added(module, by_row(adapters), x))
    assert not any(part._forward_hooks for part in model.modules())


def test_an_adapter_of_all_rows(model, adapters) -> None:
    module, x = model.model.layers[0].self_attn.q_proj, torch.randn(NUM_ROWS, 32)
    with adapted(model, batch([adapters[0]] * 4)):
        found = module(x[None])[0]
    torch.testing.assert_close(found, added(module, [adapters[0]] * NUM_ROWS, x))


@pytest.mark.parametrize("rows", [None, [0, 2, 5, 6]])
def test_the_output_projection_is_given_rows_with_logits(model, adapters, rows: list[int] | None) -> None:
    kept = range(NUM_ROWS) if rows is None else rows
    x = torch.randn(len(kept), 32)
    with adapted(model, batch(adapters, None if rows is None else torch.tensor(rows))):
        found = model.lm_head(x[None])[0]
    torch.testing.assert_close(found, added(model.lm_head, [by_row(adapters)[row] for row in kept], x))


def test_other_threads_that_share_the_model_are_given_nothing(model, adapters) -> None:
    module, x, found = model.lm_head, torch.randn(NUM_ROWS, 32), []
    with adapted(model, batch(adapters)):
        other = Thread(target=lambda: found.append(module(x)))
        other.start()
        other.join()
    torch.testing.assert_close(found[0], module(x))
