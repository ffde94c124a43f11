"""Seeded, shuffled training windows; batch n depends only on the seed and n."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


class PackedDocuments:
    """Documents joined by a separator token and cut into windows; both are reshuffled every epoch.

    The windows of a batch come from the whole corpus, because a batch of neighbours in a file has a
    gradient that is mostly about that file. Any batch can be computed without the previous ones, so
    a resumed run sees the same data as an uninterrupted one.

    Args:
        documents: token ids of each document, without separators.
        separator: token id put in front of each document.
        window: tokens per window, the label of the last position included.
        seed: seed of the shuffles.

    Raises:
        ValueError: the documents do not fill one window.
    """

    def __init__(self, documents: Sequence[Sequence[int]], *, separator: int, window: int, seed: int) -> None:
        self._documents = [torch.tensor([separator, *ids], dtype=torch.int32) for ids in documents]
        self.num_tokens = sum(len(ids) for ids in self._documents)
        self.num_windows = (self.num_tokens - 1) // (window - 1)
        if self.num_windows < 1:
            raise ValueError(
                f"{self.num_tokens} training tokens do not fill one window of {window}; use more files"
            )
        self.window = window
        self._seed = seed
        self._epoch = -1
        self._shuffled = torch.empty(0, dtype=torch.int32)

    def batch(self, index: int, size: int) -> Tensor:
        """Windows `index * size` to `(index + 1) * size - 1` of the endless stream of epochs.

        Returns:
            token ids `[size, window]`, int64.
        """
        rows: list[Tensor] = []
        for number in range(index * size, (index + 1) * size):
            epoch, row = divmod(number, self.num_windows)
            rows.append(self._windows(epoch)[row])
        return torch.stack(rows).long()

    def _windows(self, epoch: int) -> Tensor:
        """All windows of one epoch, `[num_windows, window]`; the last requested epoch is cached.

        Neighbours in the text share one token, the last label of one and the first input of the next.
        The incomplete last window is dropped; it is a different one in each epoch.
        """
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
            order = torch.randperm(len(self._documents), generator=generator).tolist()
            tokens = torch.cat([self._documents[i] for i in order])
            cut = tokens.unfold(0, self.window, self.window - 1)
            self._shuffled = cut[torch.randperm(self.num_windows, generator=generator)]
            self._epoch = epoch
        return self._shuffled


def windows(documents: Sequence[Sequence[int]], *, separator: int, window: int) -> Tensor:
    """Held-out documents as fixed windows in the order given; the incomplete last window is dropped.

    Returns:
        token ids `[N, window]`, int64; neighbouring windows share one token.

    Raises:
        ValueError: the documents are shorter than one window.
    """
    flat = torch.tensor([token for ids in documents for token in (separator, *ids)], dtype=torch.int64)
    if len(flat) < window:
        raise ValueError(
            f"held-out text has {len(flat)} tokens, one window needs {window}; hold out more files"
        )
    return flat.unfold(0, window, window - 1).contiguous()


@dataclass(frozen=True)
class PackedText:
    """Text to train on and held-out text, as windows of `seq_len` tokens and the label of the last one."""

    train: PackedDocuments
    heldout: Tensor
    """`[N, seq_len + 1]` all windows of held-out text."""
    spread: Tensor
    """`[n, seq_len + 1]` some of them, evenly spread, for evaluations during training."""


def packed_text(
    documents: Sequence[Sequence[int]],
    heldout: Sequence[Sequence[int]],
    *,
    separator: int,
    seq_len: int,
    eval_windows: int,
    seed: int,
) -> PackedText:
    """Pack the text of a run.

    Args:
        documents: token ids of each training text, without separators.
        heldout: token ids of each held-out text.
        separator: token id put in front of each text.
        seq_len: tokens that a window predicts.
        eval_windows: maximum number of windows of `PackedText.spread`.
        seed: seed of the shuffles.

    Raises:
        ValueError: one of them is shorter than a window.
    """
    packed = PackedDocuments(documents, separator=separator, window=seq_len + 1, seed=seed)
    seen = windows(heldout, separator=separator, window=seq_len + 1)
    spread = torch.linspace(0, len(seen) - 1, min(eval_windows, len(seen))).long()
    return PackedText(packed, seen, seen[spread])


def micro_batches(batch: Tensor, size: int) -> Iterator[Tensor]:
    """Split a batch `[B, T]` into pieces of at most `size` rows."""
    for start in range(0, len(batch), size):
        yield batch[start : start + size]
