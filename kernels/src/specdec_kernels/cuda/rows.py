"""Operations on rows of logits by Triton kernels; what the host does not read stays on the device."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from specdec import SamplingParams
from specdec.interfaces import Occurrences, RowBlock, RowOperations, Transfer, sent_together
from specdec_kernels.cuda.attention import kernels_on
from specdec_kernels.cuda.penalties import Counted, Text
from specdec_kernels.triton.gumbel_sample import gumbel_sample
from specdec_kernels.triton.noise import NoiseKeys, gumbel_noise, uniforms
from specdec_kernels.triton.penalise import penalise
from specdec_kernels.triton.process_logits import Cuts, process_logits

Int64s = npt.NDArray[np.int64]
Settings = npt.NDArray[np.float64]
"""`[4, R]`, see `RowOperations.truncated`."""
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
        self._sent_cuts: tuple[Settings | None, Transfer] = None, Transfer()
        self._sent_text: tuple[Sequence[Text] | None, Counted | None] = None, None

    def prepare(self, vocab_size: int, num_nodes: int) -> None:
        """Compile the kernels for logits of so many ids, before the first request."""
        logits = torch.zeros(1, vocab_size, device=self._device)
        self.truncated(logits, np.array([[1.0], [0.0], [vocab_size], [0.5]]))
        self.truncated(logits, np.array([[1.0], [0.5], [vocab_size], [1.0]]))  # without a cut
        for count in {1, max(1, num_nodes)}:
            for parents in (None, [-1] * count):
                amounts = np.zeros(1, np.float32), (1.0, 0.0, 0.0)
                block = RowBlock(SamplingParams(), [0] * count, parents)
                text = Occurrences(np.zeros(1, np.int64), *amounts, block)
                self.penalise(logits, [(0, np.zeros(1, np.int64), text)])

    def send_with(
        self, transfer: Transfer, settings: Settings | None = None, text: Sequence[Text] | None = None
    ) -> None:
        """Send the numbers that `truncated` and `penalise` read in the transfer of the pass."""
        if settings is not None:
            transfer.add("cuts", _arrays_of(settings))
            self._sent_cuts = settings, transfer
        if text is not None:
            self._sent_text = text, Counted(text, transfer)

    def penalise(self, logits: torch.Tensor, text: Sequence[Text]) -> torch.Tensor:
        """Return `logits [R, V]` with penalties, by one kernel."""
        known, counted = self._sent_text
        counted = counted if known is text and counted is not None else Counted(text, Transfer())
        with kernels_on(self._device):
            return penalise(logits, *counted.on(self._device))

    def valid_rows(self, logits: torch.Tensor) -> torch.Tensor:
        """Return `[R]` bool: rows without NaN and with a value above -inf; the mask stays on the device, never None."""
        return logits.amax(-1) > -torch.inf

    def truncated(self, logits: torch.Tensor, settings: Settings) -> torch.Tensor:
        """Apply temperature, min-p, top-k and top-p `[4, R]` in one pass over `logits [R, V]`."""
        known, transfer = self._sent_cuts
        if known is settings:
            cuts = _used(settings, transfer.on(self._device, "cuts"), logits.shape[1])
        else:
            cuts = self._kept_cuts(settings, *logits.shape)
        with kernels_on(self._device):
            return process_logits(logits, cuts=cuts)

    def _kept_cuts(self, settings: Settings, num_rows: int, vocab_size: int) -> Cuts:
        """Return settings on the device, where those of a step before are kept."""
        if (
            settings == settings[:, :1]
        ).all():  # as in most steps, which then differ in nothing but their rows
            settings = settings[:, :1].repeat(max(_SHARED_ROWS, num_rows), 1)
        key = vocab_size, settings.tobytes()
        cuts = self._cuts.pop(key, None)
        if cuts is None:
            cuts = _used(settings, sent_together(_arrays_of(settings), self._device), vocab_size)
        self._cuts[key] = cuts
        if len(self._cuts) > _MOST_KEPT:
            self._cuts.popitem(last=False)
        parts = [None if part is None else part[:num_rows] for part in cuts[1:]]
        return Cuts(cuts.temperatures[:num_rows], *parts)

    def multinomial(
        self, weights: torch.Tensor, seeds: Int64s, positions: Int64s, samples: Int64s, words: torch.Tensor
    ) -> torch.Tensor:
        """Return `[B]` one id per row, drawn from the weights `[B, V]`."""
        with kernels_on(self._device):
            ones = torch.ones(len(weights), device=self._device)
            return multinomial(weights, ones, self._keys(seeds, positions, samples), words)

    def gumbel(
        self, seeds: Int64s, positions: Int64s, samples: Int64s, word: int, num_ids: int
    ) -> torch.Tensor:
        """Return `[B, num_ids]` Gumbel noise, float32."""
        keys = self._keys(seeds, positions, samples)
        with kernels_on(self._device):
            return gumbel_noise(keys, torch.full_like(keys.seeds, word), num_ids)

    def uniforms(self, seeds: Int64s, positions: Int64s, samples: Int64s, words: Int64s) -> torch.Tensor:
        """Return `[B, N]` one uniform per row and word, float64."""
        count = len(words)
        repeated = (key.repeat(count) for key in (seeds, positions, samples))
        *keys, each = sent_together([*repeated, np.tile(words, len(seeds))], self._device)
        with kernels_on(self._device):
            return uniforms(NoiseKeys(*keys), each, 1).view(len(seeds), count)

    def _keys(self, seeds: Int64s, positions: Int64s, samples: Int64s) -> NoiseKeys:
        return NoiseKeys(*sent_together([seeds, positions, samples], self._device))


def multinomial(
    weights: torch.Tensor, temperatures: torch.Tensor, keys: NoiseKeys, words: torch.Tensor
) -> torch.Tensor:
    """Return an id per row of `weights [B, V]`; see `RowOperations.multinomial`. Temperature 0 takes the greatest."""
    return gumbel_sample(weights.double().log(), temperatures, keys, words=words)


def _arrays_of(settings: Settings) -> list[npt.NDArray[Any]]:
    """Return the settings `[4, R]` of `RowOperations.truncated` as the kernel reads them."""
    temperatures, min_p, top_k, top_p = settings
    # A positive temperature that float32 rounds to 0 is still not greedy.
    clamped = np.where(temperatures > 0.0, temperatures.clip(_LIMITS.tiny, _LIMITS.max), 0.0)
    floats = clamped.astype(np.float32), min_p.astype(np.float32), top_p.astype(np.float32)
    return [*floats[:2], top_k.astype(np.int64), floats[2]]


def _used(settings: Settings, sent: Sequence[torch.Tensor], vocab_size: int) -> Cuts:
    """Return the settings on the device, without what changes nothing."""
    _, min_p, top_k, top_p = settings
    is_used = True, (min_p > 0.0).any(), (top_k < vocab_size).any(), (top_p < 1.0).any()
    return Cuts(*(part if used else None for part, used in zip(sent, is_used, strict=True)))  # type: ignore[arg-type]  # the first is used
