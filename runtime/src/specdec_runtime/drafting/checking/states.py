"""The states that heads are tried on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from specdec_runtime.interfaces.forward import PackedBatch, Segment
from specdec_runtime.runner import ModuleRunner


@dataclass(frozen=True)
class TargetStates:
    """The target's states at every position of a text, each `[n, H]`."""

    tokens: list[int]
    final: torch.Tensor
    """After the final norm."""
    inputs: tuple[torch.Tensor, ...]
    """Input of each layer; the last one is the output of the last layer."""
    rows: Mapping[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    """Keys and values `[n, Hkv, D]` of the layers that a head reads."""


@torch.inference_mode()
def target_states(
    runner: ModuleRunner, texts: Sequence[list[int]], num_layers: int, layers: Sequence[int] = ()
) -> list[TargetStates]:
    """Run the target over texts, each in one pass from its beginning.

    Args:
        runner: the target's; its cache is replaced.
        texts: the texts.
        num_layers: number of its layers.
        layers: those whose keys and values are kept.
    """
    runner.capture_hidden(range(num_layers + 1))
    runner.allocate(max(map(len, texts)))
    keys, values, found = runner.cache.keys, runner.cache.values, []
    for tokens in texts:
        ids = torch.tensor(tokens, device=runner.device)
        segments = [Segment(row=0, num_rows=len(tokens), first_slot=0, num_cached=0)]
        positions = torch.arange(len(tokens), device=runner.device)
        last = positions[-1:]
        output = runner.forward(PackedBatch(ids, positions, segments, slots=None, logits_rows=last))
        assert output.hidden_states is not None
        found.append(
            TargetStates(
                tokens,
                output.hidden_states.clone(),
                tuple(a.clone() for a in output.aux_hidden_states),
                {k: (keys[k][: len(tokens)].clone(), values[k][: len(tokens)].clone()) for k in layers},
            )
        )
    return found
