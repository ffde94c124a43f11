"""The readings that the files of multi-token-prediction layers leave open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from specdec.interfaces import TargetHandle
from specdec_plugin_mtp.assistant.loading import MODEL_TYPES
from specdec_plugin_mtp.assistant.readings import AssistantReadings
from specdec_plugin_mtp.head import MtpHead
from specdec_plugin_mtp.layouts import Layout
from specdec_plugin_mtp.loading import find_layout, load_mtp
from specdec_plugin_mtp.tensors import MtpTensors
from specdec_runtime.drafting import HeadCheckpoint
from specdec_runtime.drafting.checking import HeadReadings, Reading, TargetStates, of_chain

_ATTENTION = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class MtpReading(Reading):
    """One way to run the layers.

    Args:
        layout: names of tensors, and what is done between them.
    """

    layout: Layout


class MtpReadings(HeadReadings):
    """The sides of norms on which states are taken, the order in which token and state are joined, and windows."""

    def __init__(self, checkpoint: HeadCheckpoint, target: TargetHandle) -> None:
        super().__init__(checkpoint, target)
        self._tensors = MtpTensors(checkpoint, str(checkpoint))
        self._config = target.config.get_text_config()

    def facts(self) -> dict[str, Any]:
        """Return the method, the dialect, `num_logits` and further facts of the files."""
        head = self._head(self.published())
        return {
            "method": "mtp",
            "dialect": head.layout.family,
            "num_stages": head.num_stages,
            "num_logits": head.num_logits,
        }

    def published(self) -> MtpReading:
        """Return the reading that the files give."""
        return MtpReading("", "", find_layout(self._tensors, self._config)[0])

    def others(self, reading: MtpReading, longest: int) -> Iterator[MtpReading]:
        """Yield the readings that differ from one in one thing."""
        layout = reading.layout
        reads, carries = not layout.reads_unnormed, not layout.carries_unnormed
        first = not layout.is_feature_first
        changed = {
            f"states {_side(reads)} the target's norm": replace(layout, reads_unnormed=reads),
            f"carry {_side(carries)} the norm": replace(layout, carries_unnormed=carries),
            f"{'state' if first else 'token'} first in the joined vector": replace(
                layout, is_feature_first=first
            ),
        }
        kinds = getattr(self._config, "layer_types", None) or []
        own = layout.attention_type or (kinds[-1] if kinds else None)
        for kind in _ATTENTION:
            if kind in kinds and kind != own:
                changed[f"{kind.replace('_', ' ')} in its layers"] = replace(layout, attention_type=kind)
        for name, other in changed.items():
            yield MtpReading(name, f"a layout with {name}, which this package does not read here", other)

    def likelihoods(
        self, reading: MtpReading, texts: list[TargetStates]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log-likelihoods of tokens as first and as second one of a draft, under one reading."""
        head = self._head(reading)
        features = [head.combine(text.final, text.inputs[-1:]) for text in texts]
        return of_chain(head, features, texts, self.target)

    def _head(self, reading: MtpReading) -> MtpHead:
        is_target = self.target.path is not None and str(self.checkpoint.directory) == self.target.path
        own_config = None if is_target else self.checkpoint.config
        return load_mtp(self.target, self._tensors, own_config, layout=reading.layout)


def readings_of(checkpoint: HeadCheckpoint, target: TargetHandle) -> HeadReadings:
    """Return how layers, or an assistant, can be read."""
    is_assistant = checkpoint.config.get("model_type") in MODEL_TYPES
    kind = AssistantReadings if is_assistant else MtpReadings
    return kind(checkpoint, target)


def _side(is_before: bool) -> str:
    return "before" if is_before else "after"
