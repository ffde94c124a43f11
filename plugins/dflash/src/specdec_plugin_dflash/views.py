"""What the layers of a head see: of the text before a block, and of the block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from specdec import ModelError
from specdec_runtime.drafting.config_keys import flag_of, number_of


@dataclass(frozen=True)
class View:
    """What the rows of a block see in one layer; without a window or causality all of the text and all of the block.

    Args:
        window: number of positions that a row sees, itself included; None for all.
        is_causal: whether a row sees no later row of its block.
        is_from_anchor: whether `window` counts the positions of the text before the block, for all of its rows alike, as
            speculators trains; else it is a row's own.
    """

    window: int | None = None
    is_causal: bool = False
    is_from_anchor: bool = False

    def first_key(self, num_before: int) -> int:
        """Return the first position of a text of `num_before` positions that a row of the block behind it sees."""
        if self.window is None:
            return 0
        return max(0, num_before - self.window + (0 if self.is_from_anchor else 1))

    def visible(self, rows: torch.Tensor, keys: torch.Tensor, anchor: torch.Tensor | int) -> torch.Tensor:
        """Return which keys rows of one block see, bool, of the shape that the arguments broadcast to.

        Args:
            rows: positions of rows of the block.
            keys: positions of keys: before `anchor` of the text, from there on of the block.
            anchor: position of the block's first row.
        """
        seen = torch.ones_like(rows - keys, dtype=torch.bool)
        if self.is_causal:
            seen &= keys <= rows
        if self.window is not None:
            seen &= keys >= anchor - self.window if self.is_from_anchor else keys > rows - self.window
        return seen


def read_views(
    layer: Mapping[str, Any], config: Mapping[str, Any], place: str, *, is_speculators: bool
) -> tuple[View, ...]:
    """Read what each layer sees, as vLLM and SGLang do.

    Layers with a window are causal within the block and others are not, unless `is_causal`, `causal` of `dflash_config` or
    `sliding_window_non_causal` say otherwise; `use_swa` of `dflash_config` gives all layers a window.

    Args:
        layer: configuration of the layers.
        config: the same with the head's keys and those of `dflash_config`.
        place: location named in errors.
        is_speculators: whether it is of the speculators format.

    Raises:
        ModelError: if layers are of other types, or a window has no size.
    """
    count: int = layer["num_hidden_layers"]
    kinds = layer.get("layer_types") or _by_place(layer, count, place)
    known = ("full_attention", "sliding_attention")
    if not isinstance(kinds, list) or len(kinds) != count or not all(kind in known for kind in kinds):
        raise ModelError(
            f"{place}: layer_types is {kinds!r}, and {count} layers of full_attention or sliding_attention were expected"
        )
    sliding = [kind == "sliding_attention" for kind in kinds]
    if flag_of(config, "use_swa", place) and not any(sliding):
        sliding = [True] * count
    size = config.get("swa_window_size") or (layer.get("use_sliding_window") and layer.get("sliding_window"))
    if any(sliding) and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
        raise ModelError(
            f"{place}: layers have a window, and nothing gives its size (sliding_window with use_sliding_window true, or "
            "swa_window_size of dflash_config)"
        )
    key = "causal" if config.get("is_causal") is None else "is_causal"
    given_flag = None if config.get(key) is None else flag_of(config, key, place)
    if given_flag is None and is_speculators and flag_of(config, "sliding_window_non_causal", place):
        given_flag = False
    return tuple(
        View(
            window=size if is_sliding else None,
            is_causal=is_sliding if given_flag is None else given_flag,
            is_from_anchor=is_sliding and is_speculators,
        )
        for is_sliding in sliding
    )


def _by_place(layer: Mapping[str, Any], count: int, place: str) -> list[str]:
    """Return the types of layers of a configuration that names none, as Qwen3's does."""
    has_window = layer.get("use_sliding_window") and layer.get("sliding_window") is not None
    first = number_of(layer, "max_window_layers", place, least=0) if has_window else count
    first = 28 if first is None else first  # Qwen3's default
    return ["full_attention"] * min(first, count) + ["sliding_attention"] * max(0, count - first)
