"""The `strict` sampler: a drafted token is accepted if it equals the token that plain sampling draws."""

from __future__ import annotations

from typing import ClassVar

import torch

from specdec.interfaces.row_block import node_depths
from specdec.interfaces.sampler import Verdict, VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.logits.pipeline import with_cuts
from specdec.noise import Stream, exponentials, node_word
from specdec.samplers.paths import accept_paths, greedy_verdict, raise_not_numbers
from specdec.samplers.torch_sampler import TorchSampler


class StrictSampler(TorchSampler):
    """Draws `y = argmax(log p + g)` with noise keyed by (seed, sample, position); accepts nodes equal to y.

    g is Gumbel noise. The output depends only on p and the seed: the text is the same with any proposer and
    with none. A token x
    that was not drawn with the same noise is accepted with probability p(x). (Sample-and-compare; with
    coupled drafts Daliri et al. 2024.)
    """

    name: ClassVar[str] = "strict"
    aliases: ClassVar[tuple[str, ...]] = ("gumbel",)
    is_lossless: ClassVar[bool] = True
    is_coupled: ClassVar[bool] = True

    def verify_with_torch(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        """Draw at every node, then follow the drawn tokens."""
        if batch.is_all_greedy:
            return greedy_verdict(scores, batch)
        drawn = self._draw_all(with_cuts(scores, batch), batch)
        if min(drawn) < 0:
            raise_not_numbers()
        return accept_paths(drawn, batch)

    def _draw_all(self, scores: Scores, batch: VerifyBatch) -> list[int]:
        """Return one token per row of the logits; -1 for rows that are not numbers."""
        device = scores.logits.device
        keys: list[tuple[int, int, int]] = []
        for i, count in enumerate(batch.num_nodes):
            depths = node_depths(count, None if batch.parents is None else batch.parents[i])
            keys += [
                (batch.seeds[i], batch.num_tokens[i] + depth, batch.sample_indices[i])
                for depth in [0, *depths]
            ]
        seeds, positions, samples = torch.tensor(keys, device=device).unbind(-1)
        words = torch.full_like(seeds, node_word(Stream.TARGET))
        noise = exponentials(seeds, positions, samples, words, scores.logits.shape[-1])
        probs = torch.softmax(scores.logits.double(), -1)
        drawn = (noise / probs).argmin(-1)
        chosen = torch.where(_greedy_rows(scores, batch), scores.logits.argmax(-1), drawn)
        return torch.where(probs[:, 0].isfinite(), chosen, -1).tolist()


def _greedy_rows(scores: Scores, batch: VerifyBatch) -> torch.Tensor:
    counts = zip(batch.sampling_params, batch.num_nodes, strict=True)
    flags = [params.is_greedy for params, count in counts for _ in range(count + 1)]
    return torch.tensor(flags, device=scores.logits.device)
