"""Packing: an endless stream whose every batch can be computed alone."""

from __future__ import annotations

import pytest
import torch

from specdec_train.packing import PackedDocuments, micro_batches, windows

DOCUMENTS = [[10, 11, 12], [20], [30, 31], [40, 41, 42, 43, 44]]
EPOCH = sum(len(ids) + 1 for ids in DOCUMENTS)


def make(seed: int = 3, window: int = 4) -> PackedDocuments:
    return PackedDocuments(DOCUMENTS, separator=0, window=window, seed=seed)


def stream(data: PackedDocuments, length: int) -> list[int]:
    """The first tokens of a stream, read window by window."""
    tokens: list[int] = []
    index = 0
    while len(tokens) < length:
        tokens += data.batch(index, 1)[0, :-1].tolist()
        index += 1
    return tokens[:length]


def test_every_epoch_holds_every_document_once() -> None:
    tokens = stream(make(), 3 * EPOCH)
    orders = []
    for epoch in range(3):
        part = tokens[epoch * EPOCH : (epoch + 1) * EPOCH]
        assert part[0] == 0
        assert sorted(part) == sorted([0] * len(DOCUMENTS) + [token for ids in DOCUMENTS for token in ids])
        orders.append([token for token in part if token in (11, 20, 31, 41)])
    assert len({tuple(order) for order in orders}) > 1, "epochs are shuffled differently"


def test_windows_share_one_token_and_batches_do_not_overlap_otherwise() -> None:
    data = make()
    rows = torch.cat([data.batch(0, 3), data.batch(1, 3)])
    assert rows.shape == (6, 4)
    assert torch.equal(rows[1:, 0], rows[:-1, -1])


def test_a_batch_does_not_depend_on_those_before_it() -> None:
    walked = make()
    batches = [walked.batch(step, 2) for step in range(8)]
    assert torch.equal(make().batch(6, 2), batches[6])
    assert torch.equal(walked.batch(1, 2), batches[1])
    assert not torch.equal(make(seed=4).batch(0, 2), batches[0])


def test_window_longer_than_an_epoch() -> None:
    batch = make(window=3 * EPOCH).batch(0, 1)
    assert batch[0].tolist() == stream(make(), 3 * EPOCH)


def test_nothing_to_train_on_is_an_error() -> None:
    with pytest.raises(ValueError, match="no documents"):
        PackedDocuments([], separator=0, window=4, seed=0)


def test_heldout_windows() -> None:
    assert windows([[1, 2, 3], [4, 5]], separator=0, window=3).tolist() == [[0, 1, 2], [2, 3, 0], [0, 4, 5]]
    with pytest.raises(ValueError, match="held-out text has 2 tokens, one window needs 3"):
        windows([[1]], separator=0, window=3)


def test_micro_batches_cover_the_batch() -> None:
    batch = torch.arange(10).view(5, 2)
    parts = list(micro_batches(batch, 2))
    assert [len(part) for part in parts] == [2, 2, 1]
    assert torch.equal(torch.cat(parts), batch)
