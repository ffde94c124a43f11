"""The readings that the files of heads on the target's last state leave open."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from specdec.interfaces import TargetHandle
from specdec_plugin_mlp.heads import Heads
from specdec_plugin_mlp.layout import check_target
from specdec_plugin_mlp.medusa.checkpoint import load_medusa, read_layout
from specdec_plugin_mlp.mlp_speculator.checkpoint import load_mlp_speculator
from specdec_plugin_mlp.mlp_speculator.layout import MLPSpeculatorLayout
from specdec_runtime.drafting import HeadCheckpoint
from specdec_runtime.drafting.checking import HeadReadings, Reading, TargetStates, log_likelihoods


@dataclass(frozen=True)
class StateReading(Reading):
    """One way to run the heads.

    Args:
        is_before_norm: whether they read the target's states before its final norm.
        shift: the head that predicts the first token of a draft.
        is_scaled: whether states are normalised first (`scale_input`).
    """

    is_before_norm: bool = False
    shift: int = 0
    is_scaled: bool = False


class StateHeadsReadings(HeadReadings):
    """The side of the target's norm on which states are taken, and what the heads of each method leave open."""

    def others(self, reading: StateReading, longest: int) -> Iterator[StateReading]:
        """Yield the readings that differ from one in one thing."""
        is_before = not reading.is_before_norm
        yield replace(
            reading,
            name=f"states {'before' if is_before else 'after'} the target's norm",
            remedy="heads trained on these states, which this package does not read",
            is_before_norm=is_before,
        )

    @torch.inference_mode()
    def likelihoods(
        self, reading: StateReading, texts: list[TargetStates]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log-likelihoods of tokens as first and as second one of a draft, under one reading."""
        heads, target_ids = self.heads(reading)
        first, second = [], []
        for text in texts:
            ids = torch.tensor(text.tokens, device=self.target.info.device)
            # Row j has the state at j, which chose token j + 1.
            states = heads.begin((text.inputs[-1] if reading.is_before_norm else text.final)[:-2])
            states, logits = heads.step(reading.shift, states, ids[1:-1])
            first.append(log_likelihoods(logits, ids[2:], target_ids))
            if reading.shift + 1 < heads.num_heads:
                _, logits = heads.step(reading.shift + 1, states[:-1], ids[2:-1])
                second.append(log_likelihoods(logits, ids[3:], target_ids))
        return torch.cat(first), torch.cat(second) if second else torch.empty(0, dtype=torch.float64)

    @abstractmethod
    def heads(self, reading: StateReading) -> tuple[Heads, torch.Tensor | None]:
        """Return the heads, and the target's id of each of their logits if they draft only some."""


class MedusaReadings(StateHeadsReadings):
    """Whether the first head predicts the token that the target chooses itself, too."""

    def __init__(self, checkpoint: HeadCheckpoint, target: TargetHandle) -> None:
        super().__init__(checkpoint, target)
        self._layout = layout = read_layout(checkpoint)
        check_target(
            checkpoint.path, target.info, vocab_size=layout.vocab_size, hidden_size=layout.hidden_size
        )

    def facts(self) -> dict[str, Any]:
        """Return the method, the dialect, `num_logits` and further facts of the files."""
        is_original = any("linear" in name for name in self.checkpoint.names())
        return {
            "method": "medusa",
            "dialect": "original" if is_original else "vLLM's",
            "num_heads": self._layout.num_heads,
            "num_layers": self._layout.num_hidden_layers,
            "num_logits": self._layout.num_logits,
        }

    def published(self) -> StateReading:
        """Return the reading that the files give."""
        return StateReading("", "")

    def others(self, reading: StateReading, longest: int) -> Iterator[StateReading]:
        """Yield the readings that differ from one in one thing."""
        yield from super().others(reading, longest)
        if self._layout.num_heads > 2 and not reading.shift:
            yield replace(
                reading,
                name="heads from the second on",
                remedy="files without the first head, which predicts the token that the target chooses itself",
                shift=1,
            )

    def heads(self, reading: StateReading) -> tuple[Heads, torch.Tensor | None]:
        """Return the heads, and the target's ids of their logits if they draft only some."""
        info = self.target.info
        heads, ids = load_medusa(self.checkpoint, dtype=info.dtype, device=info.device)
        return heads, None if ids is None else ids.to(info.device)


class MLPSpeculatorReadings(StateHeadsReadings):
    """Whether states are normalised first."""

    def __init__(self, checkpoint: HeadCheckpoint, target: TargetHandle) -> None:
        super().__init__(checkpoint, target)
        self._layout = layout = MLPSpeculatorLayout.read(checkpoint)
        check_target(checkpoint.path, target.info, vocab_size=layout.vocab_size, hidden_size=layout.emb_dim)

    def facts(self) -> dict[str, Any]:
        """Return the method, the dialect, `num_logits` and further facts of the files."""
        return {
            "method": "mlp_speculator",
            "dialect": "published",
            "num_heads": self._layout.n_predict,
            "num_logits": self._layout.vocab_size,
        }

    def published(self) -> StateReading:
        """Return the reading that the files give."""
        return StateReading("", "", is_scaled=self._layout.scale_input)

    def others(self, reading: StateReading, longest: int) -> Iterator[StateReading]:
        """Yield the readings that differ from one in one thing."""
        yield from super().others(reading, longest)
        is_scaled = not reading.is_scaled
        yield replace(
            reading,
            name=f"states {'normalised' if is_scaled else 'as they are'}",
            remedy=f'"scale_input": {str(is_scaled).lower()} in its config.json',
            is_scaled=is_scaled,
        )

    def heads(self, reading: StateReading) -> tuple[Heads, torch.Tensor | None]:
        """Return the heads, and the target's ids of their logits if they draft only some."""
        info = self.target.info
        heads = load_mlp_speculator(self.checkpoint, dtype=info.dtype, device=info.device)
        heads.layout = heads.layout.model_copy(update={"scale_input": reading.is_scaled})
        return heads, None
