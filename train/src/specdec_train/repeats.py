"""Windows of random tokens that repeat: nothing but copying predicts them, so copying is learnt."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_SHORTEST, _LONGEST = 16, 300


@dataclass(frozen=True)
class Repeats:
    """When one window of each step is a random segment said over and over.

    A small model left to text alone is slow to find out that what was said before is said again (induction heads, Olsson et
    al., arXiv 2209.11895). Random tokens leave it no other way to lower the loss.

    Args:
        first_step, last_step: steps in which it is, the last one not included.
    """

    first_step: int
    last_step: int

    def put_into(self, batch: Tensor, step: int, *, vocab_size: int, seed: int) -> Tensor:
        """Return the batch `[B, T]` of a step, its last window replaced where the step is among them.

        Args:
            batch: token ids; not written to.
            step: the optimizer step.
            vocab_size: ids are drawn below it.
            seed: seed of the run.
        """
        if not self.first_step <= step < self.last_step:
            return batch
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        length = int(torch.randint(_SHORTEST, _LONGEST, (1,), generator=generator))
        segment = torch.randint(vocab_size, (length,), generator=generator)
        window = batch.shape[1]
        repeated = segment.repeat(window // length + 1)[:window]
        return torch.cat([batch[:-1], repeated[None].to(batch.dtype)])
