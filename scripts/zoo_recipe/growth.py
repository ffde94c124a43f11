"""Grows a trained model in depth: more layers that compute the same function, then more training."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_train.schedule import Schedule

_WRITERS = ("self_attn.o_proj.weight", "mlp.down_proj.weight")
"""The two weights through which a layer writes to the residual stream."""


@dataclass(frozen=True)
class Growth:
    """The second part of a run, which grows the model in depth.

    Progressive stacking (Gong et al., ICML 2019), with new layers of zero output (arXiv 2401.02415).

    Args:
        num_layers: number of layers after the growth.
        max_steps: optimizer steps after the growth.
        share: share of the run's time budget that is reserved for them.
        muon_lr, adamw_lr: peak learning rates.
        schedule: shape of the learning rate over the steps after the growth.
    """

    num_layers: int = 15
    max_steps: int = 1700
    share: float = 0.3
    muon_lr: float = 0.01
    adamw_lr: float = 0.0015
    schedule: Schedule = field(default_factory=lambda: Schedule(warmup=0.02, decay=0.6))

    def __post_init__(self) -> None:
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"share={self.share} must lie between 0 and 1")


def grown(model: LlamaForCausalLM, num_layers: int) -> LlamaForCausalLM:
    """Return a model of `num_layers` layers that computes the same function as `model`.

    The new layers are spread evenly. Each is a copy of the layer before it with zero outputs. It changes
    nothing at first and is trained from the first step.

    Raises:
        ValueError: if `num_layers` is below the current number of layers, or more than twice it.
    """
    now = model.config.num_hidden_layers
    if not now <= num_layers <= 2 * now:
        raise ValueError(f"{now} layers can grow to {now} to {2 * now}, not to {num_layers}")
    weights = {name: value for name, value in model.state_dict().items() if ".layers." not in name}
    place = 0
    for layer in range(now):
        own = model.model.layers[layer].state_dict()
        # How many of the evenly spread new layers directly follow this one.
        num_new = (layer + 1) * (num_layers - now) // now - layer * (num_layers - now) // now
        for copy in range(1 + num_new):
            for name, value in own.items():
                is_silent = copy > 0 and name in _WRITERS
                weights[f"model.layers.{place}.{name}"] = (
                    torch.zeros_like(value) if is_silent else value.clone()
                )
            place += 1
    config = LlamaConfig.from_dict(model.config.to_dict() | {"num_hidden_layers": num_layers})
    larger = LlamaForCausalLM(config)
    larger.load_state_dict(weights)
    return larger
