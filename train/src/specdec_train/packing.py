"""An endless, seeded stream of training windows; window n is a function of the seed and n alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


class PackedDocuments:
    """Documents joined by a separator token and cut into windows, reshuffled every epoch.

    The stream is `sep doc sep doc ...`; every epoch holds every document once, so all epochs are
    equally long and any batch can be computed without those before it: a resumed run sees the same
    data as one that was never interrupted.

    Args:
        documents: token ids of each document, without separators.
        separator: token id put in front of each document.
        window: tokens per window, the label of the last position included.
        seed: seed of the shuffles.
    """

    def __init__(self, documents: Sequence[Sequence[int]], *, separator: int, window: int, seed: int) -> None:
        if not documents:
            raise ValueError("no documents to train on; check the corpus and its split")
        self._documents = [torch.tensor([separator, *ids], dtype=torch.int32) for ids in documents]
        self._window = window
        self._seed = seed
        self._epoch = -1
        self._tokens = torch.empty(0, dtype=torch.int32)
        self.num_tokens = sum(len(ids) for ids in self._documents)

    def batch(self, index: int, size: int) -> Tensor:
        """Windows `index * size` to `(index + 1) * size - 1` of the stream.

        Neighbouring windows share one token: the last label of one is the first input of the next.

        Returns:
            token ids `[size, window]`, int64.
        """
        stride = self._window - 1
        start = index * size * stride
        flat = self._slice(start, start + size * stride + 1)
        return flat.unfold(0, self._window, stride).long()

    def _slice(self, start: int, stop: int) -> Tensor:
        """Tokens `start .. stop - 1` of the endless stream."""
        parts: list[Tensor] = []
        while start < stop:
            epoch, offset = divmod(start, self.num_tokens)
            part = self._epoch_tokens(epoch)[offset : offset + stop - start]
            parts.append(part)
            start += len(part)
        return torch.cat(parts)

    def _epoch_tokens(self, epoch: int) -> Tensor:
        """The whole stream of one epoch; the last one asked for is kept."""
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
            order = torch.randperm(len(self._documents), generator=generator).tolist()
            self._tokens = torch.cat([self._documents[i] for i in order])
            self._epoch = epoch
        return self._tokens


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


def micro_batches(batch: Tensor, size: int) -> Iterator[Tensor]:
    """A batch `[B, T]` in pieces of at most `size` rows."""
    for start in range(0, len(batch), size):
        yield batch[start : start + size]
