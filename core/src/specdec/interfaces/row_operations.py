"""Operations on rows of logits that every step needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces.row_block import RowBlock
from specdec.interfaces.sent import Transfer

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Occurrences(NamedTuple):
    """What penalties count of one request."""

    ids: Int64s
    """`[n]` different ids that occurred in its text."""
    counts: npt.NDArray[np.float32]
    """`[n]` how often each did in the output; 0 if only in the prompt, where that counts."""
    amounts: tuple[float, float, float]
    """Penalties for repetition, presence and frequency."""
    block: RowBlock
    """Its rows; drafted ids on the path to a row count as output."""


class RowOperations(ABC):
    """Argmax, finite rows, temperature, and draws with the noise of `specdec.noise`, on one device."""

    penalises: ClassVar[bool] = False
    """Whether `penalise` is there; otherwise the host makes a list of changes."""

    def prepare(self, vocab_size: int, num_nodes: int) -> None:  # noqa: B027  most compile nothing
        """Compile what is run on logits of so many ids, along drafts of up to so many nodes, before the first request."""

    def penalise(self, logits: torch.Tensor, text: Sequence[tuple[int, Int64s, Occurrences]]) -> torch.Tensor:
        """Return `logits [R, V]`, float32, with penalties; for each request: its first row, and which from there on."""
        raise NotImplementedError

    def send_with(self, transfer: Transfer, settings: Floats | None = None, text: Any = None) -> None:
        """Send along with a pass what `truncated` and `penalise` will read of these very objects, if anything."""
        return

    def best_ids(self, logits: torch.Tensor) -> list[int]:
        """Return the argmax `[R]` of `logits [R, V]`; ties go to the lowest id."""
        return logits.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).argmax(-1).tolist()

    @abstractmethod
    def valid_rows(self, logits: torch.Tensor) -> torch.Tensor | None:
        """Return `[R]` bool: rows of `logits [R, V]` without NaN and with a value above -inf; None if all are known to be."""

    def scaled(self, logits: torch.Tensor, temperature: float) -> torch.Tensor:
        """Return `(logits - max) / temperature` `[R, V]`, with the maximum of each row; NaN spreads over its row."""
        return (logits - logits.amax(-1, keepdim=True)) / temperature

    def scaled_rows(self, logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
        """Return the same for a temperature per row, `[R, 1]` float64 on the device of `logits`."""
        return (logits - logits.amax(-1, keepdim=True)) / temperatures.to(logits.dtype)

    def keep_top_p(self, logits: torch.Tensor, top_p: float | torch.Tensor, counts: Int64s) -> torch.Tensor:
        """Return rows with -inf for all but the fewest most probable ids whose total reaches `top_p`.

        Ties go to the lowest ids.

        Args:
            logits: `[R, V]`.
            top_p: of all rows, or `[R, 1]` float32; 1 keeps a row as it is.
            counts: `[R]`: most ids of a row that are not -inf.
        """
        values, ids = (part[..., : counts.max()] for part in logits.sort(descending=True, stable=True))
        probs, bound = torch.softmax(values, -1), torch.as_tensor(top_p)
        is_cut = probs.cumsum(-1) - probs >= torch.where(bound < 1.0, bound, torch.inf)
        is_cut[..., 0] = False
        kept = values.masked_fill(is_cut, -torch.inf)
        return torch.full_like(logits, -torch.inf).scatter_(-1, ids, kept)

    def truncated(self, logits: torch.Tensor, settings: Floats) -> torch.Tensor | None:
        """Apply temperature, min-p, top-k and top-p at once; None leaves that to the operations above.

        Args:
            logits: `[R, V]` float32; kept.
            settings: `[4, R]` temperature (0 leaves a row as it is), min-p (0 keeps all), top-k (V keeps all) and top-p.

        Returns:
            `[R, V]` with -inf for ids without probability; NaN spreads over its row.
        """
        return None

    @abstractmethod
    def multinomial(
        self, weights: torch.Tensor, seeds: Int64s, positions: Int64s, samples: Int64s, words: torch.Tensor
    ) -> torch.Tensor:
        """Draw one id per row by `argmin(e / w)` over exponentials e; ties go to the lowest id.

        Args:
            weights: `[B, V]`, not negative, at least one above 0 in each row; need not sum to 1.
            seeds: `[B]` request seeds.
            positions: `[B]` see `specdec.noise.keys`, like the next two.
            samples: `[B]`.
            words: `[B]` int64 from `node_word`, on the device of `weights`.

        Returns:
            `[B]` int64 on the device of `weights`.
        """

    @abstractmethod
    def gumbel(
        self, seeds: Int64s, positions: Int64s, samples: Int64s, word: int, num_ids: int
    ) -> torch.Tensor:
        """Return Gumbel noise `[B, num_ids]` in float32; arguments as for `multinomial`."""

    @abstractmethod
    def uniforms(self, seeds: Int64s, positions: Int64s, samples: Int64s, words: Int64s) -> torch.Tensor:
        """Return one uniform per row and word, `[B, N]` float64, strictly between 0 and 1: that of token id 0."""
