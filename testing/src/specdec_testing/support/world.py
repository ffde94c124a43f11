"""A target small enough to enumerate all its texts, and drafts for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from specdec import SamplingParams
from specdec.interfaces import Scores, VerifyBatch
from specdec_testing.support.checked_draft import with_draft
from specdec_testing.support.world_drafts import Drafted, DraftMaker, Prefixes

VOCAB_SIZE = 4
LENGTH = 3
"""Number of tokens of the texts whose distribution is compared."""
NUM_COMMITTED = 10
"""Number of committed tokens before a text begins."""
_MAX_DEPTH = LENGTH + 3


@dataclass(frozen=True)
class Trial:
    """One batch to verify."""

    scores: Scores
    drafted: Drafted
    batch: VerifyBatch

    def alone(self, index: int) -> Trial:
        """Return one request as a separate batch."""
        start = self.batch.row_starts[index]
        rows = self.scores.logits[start : start + self.batch.num_nodes[index] + 1].clone()
        drafted = self.drafted.alone(index)
        batch = replace(
            self.batch,
            num_tokens=[self.batch.num_tokens[index]],
            seeds=[self.batch.seeds[index]],
            sample_indices=[self.batch.sample_indices[index]],
            sampling_params=[self.batch.sampling_params[index]],
        )
        return Trial(Scores(logits=rows, raw_logits=rows), drafted, with_draft(batch, drafted.checked()))


class World:
    """Distributions of the next id after every text of up to `_MAX_DEPTH` ids.

    A text is encoded as a number: 0 is the empty text, `4 t + 1 + id` is text t followed by one more id.

    Args:
        logits: `[num_texts, 4]`, or None for random ones; about one text in five forbids an id.
        seed: seed of the random logits.
    """

    def __init__(self, logits: torch.Tensor | None = None, seed: int = 0) -> None:
        num_texts = sum(VOCAB_SIZE**depth for depth in range(_MAX_DEPTH + 1))
        if logits is None:
            generator = torch.Generator().manual_seed(seed)
            logits = 1.2 * torch.randn(num_texts, VOCAB_SIZE, generator=generator)
            forbidden = torch.randint(0, 5 * VOCAB_SIZE, (num_texts,), generator=generator)
            at = (forbidden < VOCAB_SIZE).nonzero()[:, 0]
            logits[at, forbidden[at]] = -torch.inf
        else:
            logits = logits.expand(num_texts, VOCAB_SIZE)
        self.logits = logits

    def text_probs(self) -> torch.Tensor:
        """Return the probability of every text of `LENGTH` ids, ordered by number."""
        probs = torch.softmax(self.logits.double(), -1)
        texts, text_probs = torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.float64)
        for _ in range(LENGTH):
            text_probs = (text_probs[:, None] * probs[texts]).flatten()
            texts = (VOCAB_SIZE * texts[:, None] + 1 + torch.arange(VOCAB_SIZE)).flatten()
        return text_probs

    def trial(
        self,
        maker: DraftMaker,
        texts: torch.Tensor,
        seeds: Sequence[int],
        params: Sequence[SamplingParams],
        sample_indices: Sequence[int] | None = None,
    ) -> Trial:
        """Return a batch of requests, each after a text, with drafts from `maker`.

        Args:
            maker: makes the drafts.
            texts: `[B]` numbers of the texts emitted so far.
            seeds: `[B]` seeds.
            params: `[B]` sampling parameters.
            sample_indices: `[B]`; zeros if None.
        """
        samples = [0] * len(seeds) if sample_indices is None else list(sample_indices)
        committed = [NUM_COMMITTED + depth for depth in depths_of(texts)]
        drafted = maker(Prefixes(texts, list(seeds), samples, committed))
        logits = self.logits[drafted.texts_of_rows()]
        batch = VerifyBatch([], committed, list(seeds), samples, list(params))
        return Trial(Scores(logits=logits, raw_logits=logits), drafted, with_draft(batch, drafted.checked()))


def depths_of(texts: torch.Tensor) -> list[int]:
    """Return the number of ids of each text."""
    depths, rest = torch.zeros_like(texts), texts.clone()
    while bool((rest > 0).any()):
        depths += rest > 0
        rest = torch.where(rest > 0, (rest - 1) // VOCAB_SIZE, rest)
    found: list[int] = depths.tolist()
    return found


def random_logits(seed: int, num_values: int = 3) -> torch.Tensor:
    """Return logits with few integer values, so that ties are common."""
    generator = torch.Generator().manual_seed(seed)
    num_texts = sum(VOCAB_SIZE**depth for depth in range(_MAX_DEPTH + 1))
    return torch.randint(0, num_values, (num_texts, VOCAB_SIZE), generator=generator).float()
