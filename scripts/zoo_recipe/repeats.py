"""Windows of repeated random tokens: only copying predicts them, so the model learns to copy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_SHORTEST, _LONGEST = 16, 300


@dataclass(frozen=True)
class Repeats:
    """The steps in which one window is a repeated random segment.

    A small model trained on text alone is slow to learn to copy earlier text (induction heads, Olsson et al.,
    arXiv 2209.11895). With random tokens, copying is the only way to lower the loss.

    Args:
        first_step, last_step: range of steps, the last one excluded.
    """

    first_step: int
    last_step: int

    def put_into(self, batch: Tensor, step: int, *, vocab_size: int, seed: int) -> Tensor:
        """Return the batch `[B, T]` of a step, with its last window replaced if the step is in the range.

        Args:
            batch: token ids; not modified.
            step: the optimizer step.
            vocab_size: upper bound of the drawn ids, exclusive.
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
