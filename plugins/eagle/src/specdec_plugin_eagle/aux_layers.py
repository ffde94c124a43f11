"""Which layers of the target an EAGLE-3 head reads, from the numbers in its `config.json`.

Exporters count differently. Here k means the input of layer k, which is the output of layer k - 1; n is the last output.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec import ConfigError
from specdec_runtime.drafting.config_keys import ids_of

logger = logging.getLogger("specdec")

KEY = "eagle_aux_hidden_state_layer_ids"
_SEMANTICS = {"vllm": False, "sglang": True}
"""Values of `eagle_aux_layer_semantics`, and whether the ids then count outputs."""


@dataclass(frozen=True)
class AuxLayers:
    """The ids in a file, and what they count.

    Args:
        ids: the ids as they are there.
        are_outputs: whether they count outputs, as hooks of ModelOpt and SpecForge do, and not inputs.
        is_sure: whether the file leaves no other reading.
    """

    ids: tuple[int, ...]
    are_outputs: bool = False
    is_sure: bool = True

    @classmethod
    def from_config(cls, config: Mapping[str, Any], place: str, *, is_speculators: bool) -> AuxLayers | None:
        """Read a `config.json`; None if it names no layers.

        Ids of the speculators format, and others at the top level, count inputs; those nested in `eagle_config` alone count
        outputs. At the top level, ids that begin with 1 may be outputs as well, unless nested ones beside them tell.

        Raises:
            ModelError: if they are no numbers.
        """
        inner = config.get("eagle_config")
        top, nested = config.get(KEY), inner.get(KEY) if isinstance(inner, Mapping) else None
        found = nested if top is None else top
        ids = None if found == [] else ids_of({KEY: found}, KEY, place)
        if ids is None:
            return None
        semantics = _SEMANTICS.get(str(config.get("eagle_aux_layer_semantics")))
        if semantics is not None:
            return cls(ids, semantics)
        if top is None:
            return cls(ids, are_outputs=True, is_sure=ids[0] != 2)
        return cls(ids, is_sure=is_speculators or ids[0] != 1 or nested == [i - 1 for i in ids])

    def inputs(self, count: int | None) -> tuple[int, ...]:
        """Return the layers whose inputs are meant, of a target with `count` layers; None if that is not known.

        Outputs are counted up to `count - 1`, and exporters' default of outputs begins with 1, that of inputs with 2.
        """
        if self.are_outputs and max(self.ids) != count and (self.is_sure or self.ids[0] != 2):
            return self.other
        return self.ids

    @property
    def other(self) -> tuple[int, ...]:
        """The ids as outputs."""
        return tuple(i + 1 for i in self.ids)


def layers_read(layers: AuxLayers | None, count: int | None, place: str) -> tuple[int, ...]:
    """Return the layers whose inputs a head reads, and log them: a warning if they are guessed.

    Args:
        layers: what its `config.json` names; None for the paper's default.
        count: number of the target's layers; None if that is not known, for layers that are named.
        place: location named in messages.

    Raises:
        ConfigError: if the target does not have such layers.
    """
    if layers is not None:
        ids, source = layers.inputs(count), KEY
    else:
        assert count is not None
        ids, source = (2, count // 2, count - 3), f"without {KEY} layers 2, L / 2 and L - 3"
    if count is not None and not all(0 <= layer <= count for layer in ids):
        raise ConfigError(
            f"{place}: {source}: {list(ids)}, and the target has ids 0 to {count}: it is a head of another target"
        )
    if layers is None or not layers.is_sure:
        why = (
            "its config.json names none"
            if layers is None
            else f"{list(layers.ids)} there may count outputs or inputs"
        )
        other = "" if layers is None else f", else {list(layers.other if ids == layers.ids else layers.ids)}"
        logger.warning(
            "%s: the inputs of the target's layers %s are read, a guess: %s; if few drafts pass, give aux_layer_ids%s",
            place, list(ids), why, other,
        )  # fmt: skip
    else:
        logger.info("%s: the inputs of the target's layers %s are read", place, list(ids))
    return ids
