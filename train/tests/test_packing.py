"""Packing: shuffled windows, every batch of which can be computed alone."""

from __future__ import annotations

import pytest
import torch

from specdec_train.packing import PackedDocuments, micro_batches, windows

DOCUMENTS = [[10, 11, 12], [20], [30, 31], [40, 41, 42, 43, 44]]


def make(seed: int = 3) -> PackedDocuments:
    return PackedDocuments(DOCUMENTS, separator=0, window=4, seed=seed)


def epoch_of(data: PackedDocuments, number: int) -> list[list[int]]:
    """All windows of one epoch."""
    return data.batch(number, data.num_windows).tolist()


def text_of(windows_: list[list[int]]) -> list[int]:
    """The text that windows were cut from, put together by the tokens that neighbours share."""
    (start,) = [window for window in windows_ if all(window[0] != other[-1] for other in windows_)]
    text, left = list(start), [window for window in windows_ if window is not start]
    while left:
        (following,) = [window for window in left if window[0] == text[-1]]
        text += following[1:]
        left.remove(following)
    return text


def test_every_epoch_holds_every_document_once_in_another_order() -> None:
    documents = [[10 * i + j for j in range(5)] for i in range(1, 9)]
    # 48 tokens in windows of 48, so that nothing is dropped and one window is the whole epoch.
    data = PackedDocuments(documents, separator=0, window=48, seed=3)
    texts = [epoch_of(data, epoch)[0] for epoch in range(3)]
    for text in texts:
        parts = [text[i : i + 6] for i in range(0, 48, 6)]
        assert sorted(parts) == [[0, *ids] for ids in documents]
    assert len({tuple(text) for text in texts}) == 3


def test_windows_are_shuffled_pieces_of_the_text() -> None:
    document = list(range(1, 41))
    data = PackedDocuments([document], separator=0, window=6, seed=3)
    assert data.num_windows == 8
    rows = epoch_of(data, 0)
    assert text_of(rows) == [0, *document]
    assert rows != sorted(rows)
    assert rows != epoch_of(data, 1)


def test_a_batch_does_not_depend_on_those_before_it() -> None:
    walked = make()
    batches = [walked.batch(step, 2) for step in range(8)]
    assert torch.equal(make().batch(6, 2), batches[6])
    assert torch.equal(walked.batch(1, 2), batches[1])
    assert not torch.equal(torch.cat([make(seed=4).batch(step, 2) for step in range(8)]), torch.cat(batches))


def test_a_batch_may_span_epochs() -> None:
    data = make()
    whole = torch.tensor(epoch_of(data, 0) + epoch_of(data, 1))
    size = data.num_windows + 1
    assert torch.equal(data.batch(0, size), whole[:size])


@pytest.mark.parametrize("documents", [[], [[1, 2]]])
def test_too_little_text_is_an_error(documents: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="do not fill one window of 4; use more files"):
        PackedDocuments(documents, separator=0, window=4, seed=0)


def test_heldout_windows() -> None:
    assert windows([[1, 2, 3], [4, 5]], separator=0, window=3).tolist() == [[0, 1, 2], [2, 3, 0], [0, 4, 5]]
    with pytest.raises(ValueError, match="held-out text has 2 tokens, one window needs 3"):
        windows([[1]], separator=0, window=3)


def test_micro_batches_cover_the_batch() -> None:
    batch = torch.arange(10).view(5, 2)
    parts = list(micro_batches(batch, 2))
    assert [len(part) for part in parts] == [2, 2, 1]
    assert torch.equal(torch.cat(parts), batch)
