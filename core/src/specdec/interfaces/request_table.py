"""The committed tokens of the running requests, where the target is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import pad

from specdec.interfaces.sent import sent_together


@dataclass(frozen=True)
class RequestTable:
    """A line of tokens for each running request, on the target's device.

    Verification appends what it emits before the host has read that. On a device the table is therefore ahead of the host,
    which fills a line once, when its request starts. Any engine that keeps such tensors can hand them to a proposer: those of
    vLLM's V2 runner are `all_token_ids` and `total_len`.
    """

    token_ids: torch.Tensor
    """`[lines, W]` int32: the tokens of each request, prompt included, and anything behind them; in the last column always,
    unless the table is a host's."""
    num_tokens: torch.Tensor
    """`[lines]` int64, int32 in a host's table: how many there are."""

    @classmethod
    def on(cls, device: torch.device, num_lines: int, max_num_tokens: int) -> Self:
        """Return an empty table on a device, for requests of at most `max_num_tokens`."""
        shape = num_lines, max_num_tokens + 1
        return cls(
            torch.zeros(shape, dtype=torch.int32, device=device),
            torch.zeros(num_lines, dtype=torch.int64, device=device),
        )

    def write(
        self, lines: Sequence[int], starts: Sequence[int], texts: Sequence[npt.NDArray[np.int32]]
    ) -> None:
        """Write what the host has of some requests, by one transfer.

        Args:
            lines: of each request.
            starts: number of tokens before the new ones.
            texts: the new tokens, which may be none; then the line only ends at its start. What does not fit is dropped.
        """
        width = self.token_ids.shape[1]
        texts = [text[: max(0, width - 1 - start)] for text, start in zip(texts, starts, strict=True)]
        counts = np.array([len(text) for text in texts])
        firsts, before = np.array(lines) * width + starts, np.cumsum(counts) - counts
        places = np.repeat(firsts - before, counts) + np.arange(counts.sum())
        arrays = [
            np.concatenate(texts),
            places,
            np.array(lines),
            np.minimum(np.array(starts) + counts, width - 1),
        ]
        token_ids, slots, there, ends = sent_together(arrays, self.num_tokens.device)
        self.token_ids.view(-1).index_put_((slots,), token_ids)
        self.num_tokens.index_put_((there,), ends)

    def append(self, lines: torch.Tensor, num_accepted: torch.Tensor, token_ids: torch.Tensor) -> None:
        """Append the tokens of a verdict. What does not fit into a line, whose request then ends, is dropped.

        Args:
            lines: `[B]` int64 of each request.
            num_accepted: `[B]` int64 accepted nodes.
            token_ids: `[B, N + 1]` int64 emitted tokens, one more than nodes are accepted, and anything behind them.
        """
        last = self.token_ids.shape[1] - 1
        columns = torch.arange(token_ids.shape[1], device=lines.device)
        starts = self.num_tokens[lines].clamp(0, last)  # a proposer may have written to it
        places = starts[:, None] + columns
        places = torch.where((columns <= num_accepted[:, None]) & (places < last), places, last)
        self.token_ids[lines[:, None], places] = token_ids.to(torch.int32)
        self.num_tokens[lines] = torch.clamp(starts + num_accepted + 1, max=last)

    def lent(self) -> RequestTable:
        """Return the same memory in tensors of their own, whose sizes another may change."""
        return RequestTable(self.token_ids.view_as(self.token_ids), self.num_tokens.view_as(self.num_tokens))

    def of_lines(self, lines: Sequence[int], longest: int, num_more: int) -> RequestTable:
        """Return an own copy of some lines of at most `longest` tokens, with room for `num_more` further ones in each."""
        (there,) = sent_together([np.array(lines)], self.num_tokens.device)
        return RequestTable(
            pad(self.token_ids[:, :longest][there], (0, num_more + 1)), self.num_tokens[there]
        )
