"""The readings that the files of a head leave open."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

from specdec_plugin_eagle.settings import EagleSettings

_SMALLEST_WINDOW = 16


@dataclass(frozen=True)
class Reading:
    """One way to run a head.

    Args:
        name: what differs from the files; empty for what they say.
        remedy: how to have it, in words.
        settings: settings of the head.
        aux_ids: EAGLE-3: layers of the target whose inputs are read.
        is_before_norm: EAGLE-1: whether it reads the target's states before its final norm.
    """

    name: str
    remedy: str
    settings: EagleSettings
    aux_ids: tuple[int, ...] = ()
    is_before_norm: bool = False


def others(reading: Reading, *, is_eagle3: bool, num_layers: int, longest: int) -> Iterator[Reading]:
    """Yield the readings that differ from one in one thing.

    Args:
        reading: the reading.
        is_eagle3: whether it is an EAGLE-3 head.
        num_layers: number of the target's layers.
        longest: length of the longest text, in tokens; larger windows make no difference.
    """
    settings = reading.settings
    if is_eagle3 and reading.aux_ids:
        for shift in (-1, 1):
            ids = tuple(layer + shift for layer in reading.aux_ids)
            if min(ids) >= 0 and max(ids) <= num_layers:
                yield replace(
                    reading,
                    name=f"layers {', '.join(map(str, ids))}",
                    remedy=f'"aux_layer_ids": {list(ids)} in speculative_config',
                    aux_ids=ids,
                )
    if is_eagle3:
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


def window_of(settings: EagleSettings) -> int | None:
    """Return the sliding window of a head's layers; None if a layer has none."""
    config = settings.layer_config
    kinds = getattr(config, "layer_types", None) or ()
    return config.sliding_window if "sliding_attention" in kinds else None


def _windows(reading: Reading, longest: int) -> Iterator[Reading]:
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
