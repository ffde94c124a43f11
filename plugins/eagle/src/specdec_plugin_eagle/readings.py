"""The readings that the files of an EAGLE head leave open."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from specdec.interfaces import TargetHandle
from specdec_plugin_eagle.aux_layers import layers_read
from specdec_plugin_eagle.conversion import is_eagle3
from specdec_plugin_eagle.dialects import SPECULATORS_KEY
from specdec_plugin_eagle.loading import load_eagle, load_eagle3
from specdec_plugin_eagle.names import module_name
from specdec_plugin_eagle.settings import EagleSettings
from specdec_runtime.drafting import HeadCheckpoint
from specdec_runtime.drafting.checking import HeadReadings, Reading, TargetStates, of_chain

_SMALLEST_WINDOW = 16


@dataclass(frozen=True)
class EagleReading(Reading):
    """One way to run a head.

    Args:
        settings: settings of the head.
        aux_ids: EAGLE-3: layers of the target whose inputs are read.
        is_before_norm: EAGLE-1: whether it reads the target's states before its final norm.
    """

    name: str
    remedy: str
    settings: EagleSettings
    aux_ids: tuple[int, ...] = ()
    is_before_norm: bool = False


class EagleReadings(HeadReadings):
    """Layers of the target, sliding windows, and the sides of norms on which states are taken."""

    def __init__(self, checkpoint: HeadCheckpoint, target: TargetHandle) -> None:
        super().__init__(checkpoint, target)
        self._is_eagle3 = is_eagle3({name: module_name(name) for name in checkpoint.names()}, checkpoint)

    def facts(self) -> dict[str, Any]:
        """Return the method, the dialect, `num_logits` and further facts of the files."""
        config, published = self.checkpoint.config, self.published()
        nested = "published, nested" if isinstance(config.get("model"), dict) else "published"
        return {
            "method": "eagle3" if self._is_eagle3 else "eagle",
            "dialect": "speculators" if SPECULATORS_KEY in config else nested,
            "layers": list(published.aux_ids),
            "window": window_of(published.settings),
            "num_logits": published.settings.num_logits,
        }

    def published(self) -> EagleReading:
        """Return the reading that the files give."""
        origin = str(self.checkpoint)
        settings = EagleSettings.from_dict(self.checkpoint.config, origin, is_eagle3=self._is_eagle3)
        ids: tuple[int, ...] = ()
        if self._is_eagle3 and settings.uses_aux:
            ids = layers_read(settings.aux_layers, self.target.info.num_layers, origin)
        return EagleReading("", "", settings, ids)

    def others(self, reading: EagleReading, longest: int) -> Iterator[EagleReading]:
        """Yield the readings that differ from one in one thing; windows over half of the longest text make no difference."""
        if self._is_eagle3:
            yield from _layers(reading, self.target.info.num_layers)
            yield from _norms(reading)
        else:
            is_before = not reading.is_before_norm
            yield replace(
                reading,
                name=f"states {'before' if is_before else 'after'} the target's norm",
                remedy="a head trained on these states, which this package does not read"
                if is_before
                else "nothing",
                is_before_norm=is_before,
            )
        yield from _windows(reading, longest)

    def likelihoods(
        self, reading: EagleReading, texts: list[TargetStates]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log-likelihoods of tokens as first and as second one of a draft, under one reading."""
        head: Any
        if self._is_eagle3:
            head = load_eagle3(self.checkpoint, self.target, reading.settings, is_parallel=False)
        else:
            head = load_eagle(self.checkpoint, self.target, reading.settings)
        features = []
        for text in texts:
            final = text.inputs[-1] if reading.is_before_norm else text.final
            with torch.inference_mode():
                features.append(head.combine(final, tuple(text.inputs[layer] for layer in reading.aux_ids)))
        return of_chain(head, features, texts, self.target)


def _layers(reading: EagleReading, num_layers: int) -> Iterator[EagleReading]:
    """Yield the layers one up and one down."""
    for shift in (-1, 1) if reading.aux_ids else ():
        ids = tuple(layer + shift for layer in reading.aux_ids)
        if min(ids) >= 0 and max(ids) <= num_layers:
            yield replace(
                reading,
                name=f"layers {', '.join(map(str, ids))}",
                remedy=f'"aux_layer_ids": {list(ids)} in speculative_config',
                aux_ids=ids,
            )


def _norms(reading: EagleReading) -> Iterator[EagleReading]:
    """Yield the other side of the final norm, and of the norm of the state."""
    settings = reading.settings
    is_normed = not settings.is_normed_carry
    yield replace(
        reading,
        name=f"carry {'after' if is_normed else 'before'} the norm",
        remedy=f'"norm_output": {str(is_normed).lower()} in speculative_config',
        settings=replace(settings, is_normed_carry=is_normed),
    )
    is_residual = not settings.is_normed_residual
    yield replace(
        reading,
        name=f"residual {'after' if is_residual else 'before'} the norm",
        remedy=f'"norm_before_residual": {str(is_residual).lower()} in its config.json',
        settings=replace(settings, is_normed_residual=is_residual),
    )


def window_of(settings: EagleSettings) -> int | None:
    """Return the sliding window of a head's layers; None if a layer has none."""
    config = settings.layer_config
    kinds = getattr(config, "layer_types", None) or ()
    return config.sliding_window if "sliding_attention" in kinds else None


def _windows(reading: EagleReading, longest: int) -> Iterator[EagleReading]:
    """Yield no window, and those that are powers of two."""
    own = window_of(reading.settings)
    if own is not None:
        yield replace(
            reading,
            name="no window",
            remedy='"layer_types" without "sliding_attention" in its config.json',
            settings=_with_window(reading.settings, None),
        )
    window = _SMALLEST_WINDOW
    while 2 * window <= longest:
        if window != own:
            yield replace(
                reading,
                name=f"window {window}",
                remedy=f'"sliding_window": {window} and "layer_types": ["sliding_attention"] in its config.json (or it was '
                "trained on texts no longer than that)",
                settings=_with_window(reading.settings, window),
            )
        window *= 2


def _with_window(settings: EagleSettings, window: int | None) -> EagleSettings:
    config = copy.deepcopy(settings.layer_config)
    config.sliding_window = window
    config.layer_types = [
        "full_attention" if window is None else "sliding_attention"
    ] * config.num_hidden_layers
    if hasattr(config, "use_sliding_window"):
        config.use_sliding_window = window is not None
    return replace(settings, layer_config=config)
