"""The readings that the files of a head leave open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from specdec_plugin_dflash.forcing import forced_logits, run_blocks
from specdec_plugin_dflash.loading import load_dflash
from specdec_plugin_dflash.settings import DFlashSettings
from specdec_plugin_dflash.variants import family_of
from specdec_runtime.drafting.checking import HeadReadings, Reading, TargetStates, log_likelihoods


@dataclass(frozen=True)
class BlockReading(Reading):
    """One way to run a head.

    Args:
        settings: settings of the head.
    """

    settings: DFlashSettings


class BlockReadings(HeadReadings):
    """Whether the last committed token's row predicts, and the layers of the target."""

    def facts(self) -> dict[str, Any]:
        """Return the method, the dialect, `num_logits` and further facts of the files."""
        config, settings = self.checkpoint.config, self.published().settings
        return {
            "method": "dflash",
            "family": family_of(config, (), str(self.checkpoint)),
            "dialect": "speculators" if "speculators_model_type" in config else "published",
            "layers": list(settings.aux_layers),
            "predicts_at_anchor": settings.predicts_at_anchor,
            "num_logits": settings.num_logits,
        }

    def published(self) -> BlockReading:
        """Return the reading that the files give."""
        config, origin = self.checkpoint.config, str(self.checkpoint)
        settings = DFlashSettings.from_dict(config, origin, num_layers=self.target.info.num_layers)
        return BlockReading("", "", settings)

    def others(self, reading: BlockReading, longest: int) -> Iterator[BlockReading]:
        """Yield the readings that differ from one in one thing."""
        settings = reading.settings
        at_anchor = not settings.predicts_at_anchor
        yield replace(
            reading,
            name=f"the last token's row predicts {'the next one' if at_anchor else 'nothing'}",
            remedy=f'"sample_from_anchor": {str(at_anchor).lower()} in speculative_config',
            settings=replace(settings, predicts_at_anchor=at_anchor),
        )
        for shift in (-1, 1):
            ids = tuple(layer + shift for layer in settings.aux_layers)
            if min(ids) >= 0 and max(ids) <= self.target.info.num_layers:
                yield replace(
                    reading,
                    name=f"layers {', '.join(map(str, ids))}",
                    remedy=f'"aux_layer_ids": {list(ids)} in speculative_config',
                    settings=replace(settings, aux_layers=ids),
                )

    @torch.inference_mode()
    def likelihoods(
        self, reading: BlockReading, texts: list[TargetStates]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log-likelihoods of tokens as first and as second one of a draft, under one reading.

        Blocks begin where another ends, so that a text's blocks have as many rows as it has.
        """
        head = load_dflash(self.checkpoint, self.target, reading.settings)
        found = [[torch.empty(0, dtype=torch.float64)] for _ in range(2)]
        reach = torch.arange(-1, min(2, reading.settings.block_size - 1), device=self.target.info.device)
        for text in texts:
            ids = torch.tensor([text.tokens], device=self.target.info.device)
            anchors = torch.arange(1, ids.shape[1] - 2, reading.settings.block_size, device=ids.device)
            states = tuple(text.inputs[layer][None] for layer in reading.settings.aux_layers)
            blocks = run_blocks(head, ids, states, torch.zeros_like(anchors), anchors)
            before = ids[0, anchors[:, None] + reach]
            for step, logits in enumerate(forced_logits(head, blocks, before)):
                found[step].append(log_likelihoods(logits, ids[0, anchors + 1 + step], head.target_ids))
        return torch.cat(found[0]), torch.cat(found[1])
