"""Operations on rows of logits by Triton kernels; what the host does not read stays on the device."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import RowOperations
from specdec.runner import sent_together
from specdec_kernels.cuda.attention import kernels_on
from specdec_kernels.cuda.penalties import Text, counted
from specdec_kernels.triton.gumbel_sample import gumbel_sample
from specdec_kernels.triton.noise import NoiseKeys, gumbel_noise, uniforms
from specdec_kernels.triton.penalise import penalise
from specdec_kernels.triton.process_logits import Cuts, process_logits

Int64s = npt.NDArray[np.int64]
_MOST_KEPT = 64
"""Most settings of a batch that are kept on the device: those of a step are mostly those of the step before."""
_SHARED_ROWS = 512
_LIMITS = np.finfo(np.float32)


class DeviceRows(RowOperations):
    """Operations on one device.

    Args:
        device: of all tensors.
    """

    penalises: ClassVar[bool] = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuts: OrderedDict[tuple[int, bytes], Cuts] = OrderedDict()

    def penalise(self, logits: torch.Tensor, text: Sequence[Text]) -> None:
        """See `RowOperations.penalise`."""
        with kernels_on(self._device):
            penalise(logits, *counted(text, self._device))

    def best_ids(self, logits: torch.Tensor) -> list[int]:
        """See `RowOperations.best_ids`."""
        return logits.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).argmax(-1).tolist()

    def sound_rows(self, logits: torch.Tensor) -> torch.Tensor:
        """See `RowOperations.sound_rows`; the mask stays on the device, so it is never None."""
        return logits.amax(-1) > -torch.inf

    def scaled(self, logits: torch.Tensor, temperature: float) -> torch.Tensor:
        """See `RowOperations.scaled`."""
        return (logits - logits.amax(-1, keepdim=True)) / temperature

    def scaled_rows(self, logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
        """See `RowOperations.scaled_rows`."""
        return (logits - logits.amax(-1, keepdim=True)) / temperatures.to(logits.dtype)

    def truncated(self, logits: torch.Tensor, settings: npt.NDArray[np.float64]) -> torch.Tensor:
        """See `RowOperations.truncated`."""
        num_rows, vocab_size = logits.shape
        if (
            settings == settings[:, :1]
        ).all():  # as in most steps, which then differ in nothing but their rows
            settings = settings[:, :1].repeat(max(_SHARED_ROWS, num_rows), 1)
        key = vocab_size, settings.tobytes()
        cuts = self._cuts.pop(key, None)
        if cuts is None:
            cuts = self._sent_cuts(settings, vocab_size)
        self._cuts[key] = cuts
        if len(self._cuts) > _MOST_KEPT:
            self._cuts.popitem(last=False)
        parts = [None if part is None else part[:num_rows] for part in cuts[1:]]
        with kernels_on(self._device):
            return process_logits(logits, cuts=Cuts(cuts.temperatures[:num_rows], *parts))

    def race(
        self, weights: torch.Tensor, seeds: Int64s, positions: Int64s, samples: Int64s, words: torch.Tensor
    ) -> torch.Tensor:
        """See `RowOperations.race`."""
        logs = weights.double().log()
        with kernels_on(self._device):
            return gumbel_sample(
                logs, self._ones(len(logs)), self._keys(seeds, positions, samples), words=words
            )

    def gumbel(
        self, seeds: Int64s, positions: Int64s, samples: Int64s, word: int, num_ids: int
    ) -> torch.Tensor:
        """See `RowOperations.gumbel`."""
        keys = self._keys(seeds, positions, samples)
        with kernels_on(self._device):
            return gumbel_noise(keys, torch.full_like(keys.seeds, word), num_ids)

    def uniforms(self, seeds: Int64s, positions: Int64s, samples: Int64s, words: Int64s) -> torch.Tensor:
        """See `RowOperations.uniforms`."""
        count = len(words)
        repeated = (key.repeat(count) for key in (seeds, positions, samples))
        *keys, each = sent_together([*repeated, np.tile(words, len(seeds))], self._device)
        with kernels_on(self._device):
            return uniforms(NoiseKeys(*keys), each, 1).view(len(seeds), count)

    def _keys(self, seeds: Int64s, positions: Int64s, samples: Int64s) -> NoiseKeys:
        return NoiseKeys(*sent_together([seeds, positions, samples], self._device))

    def _ones(self, count: int) -> torch.Tensor:
        return torch.ones(count, device=self._device)

    def _sent_cuts(self, settings: npt.NDArray[np.float64], vocab_size: int) -> Cuts:
        """Return the settings `[4, R]` of `RowOperations.truncated` on the device."""
        temperatures, min_p, top_k, top_p = settings
        # A positive temperature that float32 rounds to 0 is still not greedy.
        heat = np.where(temperatures > 0.0, temperatures.clip(_LIMITS.tiny, _LIMITS.max), 0.0)
        arrays = [
            heat.astype(np.float32),
            min_p.astype(np.float32),
            top_k.astype(np.int64),
            top_p.astype(np.float32),
        ]
        sent = sent_together(arrays, self._device)
        is_used = (
            True,
            bool((min_p > 0.0).any()),
            bool((top_k < vocab_size).any()),
            bool((top_p < 1.0).any()),
        )
        return Cuts(*(part if used else None for part, used in zip(sent, is_used, strict=True)))  # type: ignore[arg-type]  # the first is used
