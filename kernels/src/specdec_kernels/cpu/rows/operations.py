"""The compiled operations behind core's interface."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import RowOperations
from specdec_kernels.cpu.rows import logits as compiled
from specdec_kernels.cpu.rows.noise import Int64s, first_uniforms, gumbel_rows, multinomial_rows
from specdec_kernels.cpu.rows.nucleus import keep_nuclei

Doubles = npt.NDArray[np.float64]
_FLOATS = (torch.float32, torch.float64)


class CpuRows(RowOperations):
    """Operations on tensors on the CPU; half precision is widened first."""

    def best_ids(self, logits: torch.Tensor) -> list[int]:
        """Return `[R]` the id of the highest logit of each row; ties go to the lowest id."""
        out = np.empty(logits.shape[0], np.int64)
        compiled.best_ids(_wide(logits).numpy(), out)
        return out.tolist()

    def valid_rows(self, logits: torch.Tensor) -> torch.Tensor | None:
        """Return `[R]` bool: rows without NaN and with a value above -inf."""
        is_valid = torch.empty(logits.shape[0], dtype=torch.bool)
        return None if compiled.are_valid(_wide(logits).numpy(), is_valid.numpy()) else is_valid

    def scaled(self, logits: torch.Tensor, temperature: float) -> torch.Tensor:
        """Return `(logits - max) / temperature` `[R, V]`."""
        return self.scaled_rows(logits, torch.full((len(logits), 1), temperature, dtype=torch.float64))

    def scaled_rows(self, logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
        """Return `(logits - max) / temperature` `[R, V]`, with a temperature for each row."""
        wide = _wide(logits)
        out = torch.empty_like(wide, memory_format=torch.contiguous_format)
        compiled.scale(wide.numpy(), temperatures[:, 0].numpy(), out.numpy())
        return out

    def truncated(self, logits: torch.Tensor, settings: Doubles) -> torch.Tensor | None:
        """Apply temperatures and min-p, if these are all that is set; None otherwise, and the single operations do it."""
        out = torch.empty_like(logits, memory_format=torch.contiguous_format)
        floors = torch.from_numpy(settings[1]).float().log().numpy()
        return out if compiled.scale_all(logits.numpy(), settings, floors, out.numpy()) else None

    def keep_top_p(self, logits: torch.Tensor, top_p: float | torch.Tensor, counts: Int64s) -> torch.Tensor:
        """Return rows with -inf for all ids outside the nucleus; a row is sorted only where rounding decides."""
        rows = len(logits)
        bounds = np.full(rows, top_p) if isinstance(top_p, float) else top_p[:, 0].double().numpy()
        weights, out, is_done = (
            (logits - logits.amax(-1, keepdim=True)).exp(),
            torch.empty_like(logits),
            np.ones(rows, bool),
        )
        keep_nuclei(logits.numpy(), weights.numpy(), bounds, out.numpy(), is_done)
        for row in np.flatnonzero(~is_done).tolist():
            one = slice(row, row + 1)
            out[one] = super().keep_top_p(logits[one], float(bounds[row]), counts[one])
        return out

    def multinomial(
        self, weights: torch.Tensor, seeds: Int64s, positions: Int64s, samples: Int64s, words: torch.Tensor
    ) -> torch.Tensor:
        """Return `[B]` one id per row, drawn from the weights `[B, V]`."""
        return torch.from_numpy(
            multinomial_rows(_wide(weights).numpy(), seeds, positions, samples, words.numpy())
        )

    def gumbel(
        self, seeds: Int64s, positions: Int64s, samples: Int64s, word: int, num_ids: int
    ) -> torch.Tensor:
        """Return `[B, num_ids]` Gumbel noise, float32."""
        return torch.from_numpy(gumbel_rows(seeds, positions, samples, word, num_ids))

    def uniforms(self, seeds: Int64s, positions: Int64s, samples: Int64s, words: Int64s) -> torch.Tensor:
        """Return `[B, N]` one uniform per row and word, float64."""
        return torch.from_numpy(first_uniforms(seeds, positions, samples, words))


def _wide(values: torch.Tensor) -> torch.Tensor:
    return values if values.dtype in _FLOATS else values.float()
