"""An exporter's own modules over whole texts, as its training runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from exporter_heads.inputs import MASK_ID, Inputs, Row


class Exported(ABC):
    """A head in its exporter's own classes.

    Args:
        layers: the layers of the target whose inputs it was made for; -1 for the state after the last norm.
    """

    def __init__(self, layers: Sequence[int]) -> None:
        self.layers = tuple(layers)

    @abstractmethod
    def logits(self, row: Row, inputs: Inputs) -> Tensor:
        """Return the logits `[V']` of a row, in float32."""


class ExportedChain(Exported):
    """A head that goes on from its own state of the row before."""

    @abstractmethod
    def feature(self, states: list[Tensor]) -> Tensor:
        """Return what it makes of the target's states, each `[n, H]`."""

    @abstractmethod
    def run(self, ids: list[int], features: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Return logits `[n, V']` and states `[n, H]` of rows at positions 0 to n - 1, `depth` drafted ones among them."""

    @torch.no_grad()
    def logits(self, row: Row, inputs: Inputs) -> Tensor:
        """See `Exported.logits`: token j goes with the state of position j - 1."""
        ids = inputs.texts[row.name][1 : row.length]
        features = self.feature(inputs.of_layers(row, self.layers))[: len(ids)]
        logits, states = self.run(ids, features, 0)
        for depth, token in enumerate(row.path, 1):
            ids, features = [*ids, token], torch.cat((features, states[-1:]))
            logits, states = self.run(ids, features, depth)
        return logits[-1].float()

    @torch.no_grad()
    def at_once(self, row: Row, inputs: Inputs, mask_id: int, mask_feature: Tensor) -> Tensor:
        """Return the logits `[V']` of a row where its path is unknown, and mask tokens stand for it."""
        count = len(row.path)
        ids = [*inputs.texts[row.name][1 : row.length], *[mask_id] * count]
        features = self.feature(inputs.of_layers(row, self.layers))[: row.length - 1]
        return self.run(ids, torch.cat((features, mask_feature.expand(count, -1))), 0)[0][-1].float()


class ExportedBlock(Exported):
    """A head that fills a block of mask tokens in one pass, and may correct its guesses by the tokens before them.

    Args:
        layers: see `Exported`.
        predicts_at_anchor: whether the row of the block's first token, the last one of the text, predicts the token behind it.
        num_rows: rows of every block; None for as many as the tokens drafted at its place need.
    """

    def __init__(
        self, layers: Sequence[int], *, predicts_at_anchor: bool = False, num_rows: int | None = None
    ) -> None:
        super().__init__(layers)
        self.predicts_at_anchor, self.num_rows = predicts_at_anchor, num_rows

    @abstractmethod
    def block(self, ids: Tensor, states: Tensor) -> Tensor:
        """Return the final states `[b, H]` of a block `[b]` behind the joined states `[n, L * H]` of a text."""

    @abstractmethod
    def project(self, states: Tensor, before: Tensor) -> Tensor:
        """Return the logits `[b, V']` of final states, for the tokens `[b]` before those that the rows predict."""

    def accepted(self, states: Tensor, before: Tensor) -> Tensor | None:
        """Return the probabilities `[b]` of acceptance of what rows predict; None for a head that says nothing of it."""
        return None

    @torch.no_grad()
    def logits(self, row: Row, inputs: Inputs) -> Tensor:
        """See `Exported.logits`."""
        states, before, place = self._read(row, inputs)
        return self.project(states, before)[place].float()

    @torch.no_grad()
    def confidence(self, row: Row, inputs: Inputs) -> Tensor | None:
        """Return the probability of acceptance of what a row predicts; see `accepted`."""
        states, before, place = self._read(row, inputs)
        accepted = self.accepted(states, before)
        return None if accepted is None else accepted[place].float()

    def _read(self, row: Row, inputs: Inputs) -> tuple[Tensor, Tensor, int]:
        """Return the final states of a row's block, the tokens before those that its rows predict, and the row's place."""
        count = max(len(other.path) for other in inputs.rows if other[:2] == row[:2]) + 1
        text, first = inputs.texts[row.name][: row.length], 0 if self.predicts_at_anchor else 1
        num_rows = self.num_rows or count + first
        ids = torch.tensor([text[-1], *[MASK_ID] * (num_rows - 1)])
        states = torch.cat(inputs.of_layers(row, self.layers), -1)[: row.length - 1]
        known = [*text[len(text) - 1 - first :], *row.path]
        before = torch.tensor([*known, *[0] * (num_rows - len(known))][:num_rows])
        return self.block(ids, states), before, first + len(row.path)
