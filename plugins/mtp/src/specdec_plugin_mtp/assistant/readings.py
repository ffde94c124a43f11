"""The readings that an assistant's files leave open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from specdec.interfaces import TargetHandle
from specdec_plugin_mtp.assistant.assistant import Rows
from specdec_plugin_mtp.assistant.loading import load_assistant
from specdec_runtime.drafting import HeadCheckpoint
from specdec_runtime.drafting.checking import HeadReadings, Reading, TargetStates, log_likelihoods


@dataclass(frozen=True)
class AssistantReading(Reading):
    """One way to run an assistant.

    Args:
        shift: how far before the last token's position it queries.
        is_before_norm: whether it reads the target's states before its final norm.
        is_state_first: whether the state comes before the embedding.
    """

    shift: int = 0
    is_before_norm: bool = False
    is_state_first: bool = False


class AssistantReadings(HeadReadings):
    """The position of queries, the side of the target's norm, and the order in which token and state are joined."""

    def __init__(self, checkpoint: HeadCheckpoint, target: TargetHandle) -> None:
        super().__init__(checkpoint, target)
        self._assistant = load_assistant(checkpoint, target, target.info.max_model_len)
        self.layers = tuple(self._assistant.layers.values())

    def facts(self) -> dict[str, Any]:
        """Return the method, the dialect and `num_logits`."""
        kind = self.checkpoint.config["model_type"]
        return {"method": "mtp", "dialect": kind, "num_logits": self.target.info.vocab_size}

    def published(self) -> AssistantReading:
        """Return the reading of `transformers`."""
        return AssistantReading("", "")

    def others(self, reading: AssistantReading, longest: int) -> Iterator[AssistantReading]:
        """Yield the readings that differ from one in one thing."""
        shift, is_before, is_first = 1 - reading.shift, not reading.is_before_norm, not reading.is_state_first
        for name, changes in (
            (f"queries at the position of the {'state' if shift else 'last token'}", {"shift": shift}),
            (f"states {'before' if is_before else 'after'} the target's norm", {"is_before_norm": is_before}),
            (
                f"{'state' if is_first else 'token'} first in the joined vector",
                {"is_state_first": is_first},
            ),
        ):
            yield replace(
                reading,
                name=name,
                remedy=f"an assistant trained for {name}, which this package does not run",
                **changes,
            )

    @torch.inference_mode()
    def likelihoods(
        self, reading: AssistantReading, texts: list[TargetStates]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log-likelihoods of tokens as first and as second one of a draft, under one reading."""
        assistant = self._assistant
        assistant.is_state_first = reading.is_state_first
        first, second = [], []
        for text in texts:
            ids = torch.tensor(text.tokens, device=self.target.info.device)
            # Row j has token j + 1 and the state at j, sees the target's rows up to j, and predicts token j + 2.
            given = (text.inputs[-1] if reading.is_before_norm else text.final)[:-2]
            ends = torch.arange(1, len(given) + 1, device=ids.device)
            positions, rows = (ends - reading.shift)[None], self._rows(text, ends)
            states, logits = assistant.run(ids[None, 1:-1], given[None], positions, rows)
            first.append(log_likelihoods(logits[0], ids[2:], None))
            shorter = tuple(part[:, :, :-1] if place % 3 == 2 else part for place, part in enumerate(rows))
            _, logits = assistant.run(ids[None, 2:-1], states[:, :-1], positions[:, :-1], shorter)
            second.append(log_likelihoods(logits[0], ids[3:], None))
        return torch.cat(first), torch.cat(second)

    def _rows(self, text: TargetStates, ends: torch.Tensor) -> Rows:
        """Return the rows of a text, row j of a pass seeing those before `ends[j]`."""
        rows = list[torch.Tensor]()
        for kind, layer in self._assistant.layers.items():
            rows += [part.transpose(0, 1)[None] for part in text.rows[layer]]
            places = torch.arange(rows[-1].shape[2], device=ends.device)
            before = ends[:, None] - places
            rows.append(((before > 0) & (before <= self._assistant.reach.get(kind, len(places))))[None, None])
        return tuple(rows)
