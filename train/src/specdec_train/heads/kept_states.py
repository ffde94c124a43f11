"""Keeps the target's states of conversations in memory across epochs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from specdec_train.answers.state_recorder import RecordedText
from specdec_train.heads.states import StateReader, TargetStates, logits_of

logger = logging.getLogger("specdec")

_MEMORY_SHARE = 0.4
"""Share of free memory."""
_MAX_DISTANCE = 0.5
"""Relative distance of recorded states from those of a pass. Those of another position are more than 1 away; those of an engine
with other arithmetic less than 0.2."""


class KeptStates(StateReader):
    """A `StateReader` that caches the target's states per row of text.

    The key of a row is its tokens without the padding, independent of the other rows: later tokens do not
    change the state of a token. Cached states of padding are zeros. Rows that do not fit into memory are
    computed again each time.

    Args:
        reader: reads rows that are not cached.
        most_bytes: maximum size of the cached states; None for a share of free memory.
    """

    def __init__(self, reader: StateReader, most_bytes: int | None = None) -> None:
        super().__init__(reader.target, reader.aux_layer_ids)
        self._most_bytes = free_bytes() if most_bytes is None else most_bytes
        self._rows: dict[bytes, tuple[Tensor, ...]] = {}
        self.num_bytes = 0
        """Size of the cached states."""
        self.num_passes = 0
        """Number of passes over the target."""

    def know(self, texts: Sequence[RecordedText]) -> None:
        """Add recorded states. The first pass over the target checks them, and drops all if they are not the target's.

        Args:
            texts: rows without the padding. States may end before the last token.
        """
        for text in texts:
            missing = len(text.ids) - len(text.states[0])
            self._rows[torch.tensor(text.ids).numpy().tobytes()] = tuple(
                nn.functional.pad(part.to(self.target.dtype), (0, 0, 0, missing)) for part in text.states
            )
        self.num_bytes = sum(part.nbytes for row in self._rows.values() for part in row)
        self._most_bytes += self.num_bytes

    @torch.no_grad()
    def read(self, tokens: Tensor, places: Tensor | None = None, ids: Tensor | None = None) -> TargetStates:
        """Return the target's states and logits for `tokens [B, T]`; see `StateReader.read`."""
        lengths = _lengths(tokens)
        keys = [row[:length].numpy().tobytes() for row, length in zip(tokens.cpu(), lengths, strict=True)]
        if not self.num_passes or not all(key in self._rows for key in keys):
            self.num_passes += 1
            states = super().read(tokens, places, ids)
            if self.num_passes == 1 and not self._agrees(keys, lengths, states):
                logger.warning("recorded states are not those of the target, so all are computed again")
                self._rows.clear()
                self.num_bytes = 0
            if self.num_passes == 1 and not self._is_known_by(states, tokens, places, ids):
                logger.warning(
                    "%s does more than project the states of its body, so these are read anew in every epoch, which is slower",
                    type(self.target).__name__,
                )
                self._rows.clear()
                self._most_bytes = 0
            self._keep(keys, lengths, (states.hidden, *states.aux))
            return states
        found = [self._rows[key] for key in keys]
        hidden, *aux = (
            torch.nn.utils.rnn.pad_sequence([row[k] for row in found], batch_first=True)
            for k in range(len(found[0]))
        )
        short = tokens.shape[1] - hidden.shape[1]
        hidden, *aux = (nn.functional.pad(part, (0, 0, 0, short)) for part in (hidden, *aux))
        return TargetStates(hidden, tuple(aux), self._logits(hidden, tokens, places, ids))

    def _logits(self, hidden: Tensor, tokens: Tensor, places: Tensor | None, ids: Tensor | None) -> Tensor:
        """Return the logits of known states `[B, T, H]`."""
        with _answering(self.target.base_model, hidden):
            return logits_of(self.target, tokens, places, ids)[1]

    def _is_known_by(
        self, states: TargetStates, tokens: Tensor, places: Tensor | None, ids: Tensor | None
    ) -> bool:
        """Return whether the logits of a pass can be computed from its states alone."""
        return torch.equal(states.logits, self._logits(states.hidden, tokens, places, ids))

    def _agrees(self, keys: list[bytes], lengths: list[int], states: TargetStates) -> bool:
        """Return whether the cached states of rows are those of a pass, up to the rounding of other arithmetic."""
        for b, (key, length) in enumerate(zip(keys, lengths, strict=True)):
            for kept, read in zip(self._rows.get(key, ()), (states.hidden, *states.aux), strict=False):
                known, seen = kept[: length - 1].float(), read[b, : length - 1].float()
                if not (known - seen).norm() <= _MAX_DISTANCE * seen.norm():
                    return False
        return True

    def _keep(self, keys: list[bytes], lengths: list[int], states: tuple[Tensor, ...]) -> None:
        for b, (key, length) in enumerate(zip(keys, lengths, strict=True)):
            size = sum(part[b, :length].nbytes for part in states)
            if key not in self._rows and self.num_bytes + size <= self._most_bytes:
                self._rows[key] = tuple(part[b, :length].clone() for part in states)
                self.num_bytes += size


def _lengths(tokens: Tensor) -> list[int]:
    """Return the number of tokens of each row before the run of equal tokens at its end."""
    differs = tokens != tokens[:, -1:]
    places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    lengths: list[int] = (differs * places).amax(1).tolist()
    return lengths


@contextmanager
def _answering(base: nn.Module, hidden: Tensor) -> Iterator[None]:
    """Make the body of a target return these states without running."""

    def forward(*args: object, **kwargs: object) -> BaseModelOutputWithPast:
        return BaseModelOutputWithPast(last_hidden_state=hidden)

    base.__dict__["forward"] = forward
    try:
        yield
    finally:
        del base.__dict__["forward"]


def free_bytes() -> int:
    """Return the bytes of memory that states may take now."""
    try:
        return int(_MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
    except (OSError, ValueError):  # the platform does not report free memory
        return 2**30
