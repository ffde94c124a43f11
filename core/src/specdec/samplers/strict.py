"""The `strict` sampler: a drafted token is accepted if it equals the token that plain sampling draws."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from specdec.interfaces.capability import Capability
from specdec.interfaces.draft import Draft
from specdec.interfaces.proposer import SPECDEC_API
from specdec.interfaces.sampler import Sampler, Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.noise import Stream, exponentials, node_word
from specdec.noise.host import walk
from specdec.samplers.device_kernels import walk_on_device
from specdec.samplers.target_probs import raise_not_numbers
from specdec.samplers.tree import node_depths
from specdec.samplers.verdicts import follow_all, greedy_verdict


class StrictSampler(Sampler):
    """Draws `y = argmax(log p + g)` with noise keyed by (seed, sample, position); accepts nodes equal to y.

    g is Gumbel noise. The output depends only on p and the seed: the text is the same with any proposer and
    with none. A token x
    that was not drawn with the same noise is accepted with probability p(x). (Sample-and-compare; with
    coupled drafts Daliri et al. 2024.)
    """

    name: ClassVar[str] = "strict"
    aliases: ClassVar[tuple[str, ...]] = ("gumbel",)
    api_version: ClassVar[int] = SPECDEC_API
    is_lossless: ClassVar[bool] = True
    is_coupled: ClassVar[bool] = True
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.TREE})

    def verify(self, scores: Scores, draft: Draft, batch: VerifyBatch) -> Verdict:
        """Walk every request's draft along the drawn tokens."""
        walked = walk_on_device(scores, draft, batch)
        if walked is not None:
            return walked
        if batch.is_all_greedy:
            return greedy_verdict(scores, draft)
        rows = draft.host_rows
        parents = None if draft.parents is None else draft.parents.tolist()
        assert rows is not None
        if scores.logits.device.type == "cpu":
            return self._walk_host(scores, rows, parents, batch)
        return follow_all(self._draw_all(scores, rows, parents, batch).tolist(), scores, draft)

    def _walk_host(
        self,
        scores: Scores,
        rows: tuple[tuple[int, ...], ...],
        parents: list[list[int]] | None,
        batch: VerifyBatch,
    ) -> Verdict:
        """Draw only along the accepted path."""
        logits = scores.logits
        logits = logits if logits.dtype is torch.float64 else logits.float()
        size = len(rows)
        width = max(map(len, rows))
        drafted = np.full((size, width + 1), -1, np.int64)
        links = np.empty((size, width + 1), np.int64)
        links[:] = np.arange(-1, width)
        for i, row in enumerate(rows):
            drafted[i, : len(row)] = row
            if parents is not None:
                links[i, : len(row)] = parents[i][: len(row)]
        nodes = np.empty((size, width + 1), np.int64)
        tokens = np.full((size, width + 1), -1, np.int64)
        counts = np.empty(size, np.int64)
        walk(
            logits.numpy(), np.array([p.is_greedy for p in batch.sampling_params]), np.array(scores.row_starts),
            np.array([len(row) for row in rows]), drafted, links,
            np.array(batch.seeds), np.array(batch.sample_indices), np.array(batch.num_tokens), nodes, tokens, counts,
        )  # fmt: skip
        if (tokens[:, 0] < 0).any():
            raise_not_numbers()
        lengths = counts.tolist()
        node_rows, token_rows = nodes.tolist(), tokens.tolist()
        return Verdict(
            [node_rows[i][:n] for i, n in enumerate(lengths)],
            [token_rows[i][: n + 1] for i, n in enumerate(lengths)],
        )

    def _draw_all(
        self,
        scores: Scores,
        rows: tuple[tuple[int, ...], ...],
        parents: list[list[int]] | None,
        batch: VerifyBatch,
    ) -> torch.Tensor:
        """Draw at every node on a device without kernels."""
        device = scores.logits.device
        keys: list[tuple[int, int, int]] = []
        for i, row in enumerate(rows):
            depths = node_depths(len(row), None if parents is None else parents[i])
            keys += [
                (batch.seeds[i], batch.num_tokens[i] + depth, batch.sample_indices[i])
                for depth in [0, *depths]
            ]
        seeds, positions, samples = torch.tensor(keys, device=device).unbind(-1)
        words = torch.full_like(seeds, node_word(Stream.TARGET))
        noise = exponentials(seeds, positions, samples, words, scores.logits.shape[-1])
        drawn = (noise / torch.softmax(scores.logits.double(), -1)).argmin(-1)
        return torch.where(_greedy_rows(scores, rows, batch), scores.logits.argmax(-1), drawn)


def _greedy_rows(scores: Scores, rows: tuple[tuple[int, ...], ...], batch: VerifyBatch) -> torch.Tensor:
    flags = [
        p.is_greedy for p, row in zip(batch.sampling_params, rows, strict=True) for _ in range(len(row) + 1)
    ]
    return torch.tensor(flags, device=scores.logits.device)
