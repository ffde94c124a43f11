"""The hidden states of SGLang's target, for heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from specdec import ConfigError

States = tuple[torch.Tensor, ...]
"""`[rows, H]` of every kind: the final states, then one per auxiliary layer."""


def can_give_layers(model: Any) -> bool:
    """Return whether SGLang's model returns the inputs of layers beside its final states."""
    return hasattr(model, "set_eagle3_layers_to_capture") and hasattr(model, "logits_processor")


class PassStates:
    """States of each request's last passes, until the tokens that they predicted are known.

    Args:
        model: SGLang's target, which is told what to return.
        layer_ids: layers whose inputs a proposer reads.
        num_layers: of the target.

    Raises:
        ConfigError: for a layer whose input SGLang does not return.
    """

    def __init__(self, model: Any, layer_ids: Sequence[int], num_layers: int) -> None:
        if num_layers in layer_ids:
            raise ConfigError(
                f"the proposer reads the output of the last of the target's {num_layers} layers before its norm, which SGLang "
                "does not return: use another head"
            )
        self._places = [sorted({*layer_ids}).index(layer) for layer in layer_ids]
        if layer_ids:
            model.logits_processor.keep_last_hidden_states = True
            model.set_eagle3_layers_to_capture([layer - 1 for layer in sorted({*layer_ids})])
        self._held: dict[str, tuple[Any, int | None, States]] = {}

    def note(self, batch: Any, output: Any, num_rows: int | None) -> None:
        """Note the states of a pass, and leave in its output what SGLang's clients may have asked for.

        Args:
            batch: SGLang's, after the pass.
            output: of the pass.
            num_rows: rows of each request in a verification; None for a pass over prompts.
        """
        final = output.hidden_states if output.last_hidden_states is None else output.last_hidden_states
        layers = output.hidden_states.chunk(len({*self._places}), -1) if self._places else ()
        kinds: States = (final, *(layers[place] for place in self._places))
        output.hidden_states = final if batch.return_hidden_states else None
        self._held = {name: held for name, held in self._held.items() if not held[0].finished()}
        first = 0
        for place, req in enumerate(batch.reqs):
            count = batch.extend_lens[place] if num_rows is None else num_rows
            rows = tuple(kind[first : first + count].clone() for kind in kinds)
            first += count
            before = self._held.get(req.rid)
            start = None if num_rows is not None else batch.prefix_lens[place]
            if start and before is not None and before[1] is not None:  # another chunk of its prompt
                rows = tuple(torch.cat(pair) for pair in zip(before[2], rows, strict=True))
                start = before[1]
            self._held[req.rid] = req, start, rows

    def take(self, name: str) -> tuple[int | None, States] | None:
        """Return the position of the first row, None for a verification, and the states of a request; forget them."""
        held = self._held.pop(name, None)
        return None if held is None else held[1:]

    def clear(self) -> None:
        """Forget all."""
        self._held.clear()
