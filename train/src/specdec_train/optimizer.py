"""The optimizer pair: Muon for matrices inside the blocks, AdamW for everything else."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from specdec_train.muon import Muon

_VOCABULARY = re.compile(r"(^|\.)(embed_tokens|emb|wte|lm_head|head|markov_w[12])(\.|$)")
"""Names of weights with a row for each token."""
_MAP = ".through"
"""Name suffix of the map of a `Factored` table, which is an ordinary matrix."""


class OptimizerPair:
    """Muon and AdamW stepped together under one learning-rate multiplier.

    Args:
        model: the model; its trainable matrices outside embeddings and output heads go to Muon, all
            other trainable parameters to AdamW.
        muon_lr: peak rate of Muon.
        adamw_lr: peak rate of AdamW.
        weight_decay: decay of the Muon matrices; embeddings and norms are not decayed.
    """

    def __init__(self, model: nn.Module, *, muon_lr: float, adamw_lr: float, weight_decay: float) -> None:
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, param in model.named_parameters():
            if param.requires_grad:
                is_table = _VOCABULARY.search(name) is not None and not name.endswith(_MAP)
                is_body = param.ndim == 2 and not is_table
                (matrices if is_body else others).append(param)
        self._optimizers: list[torch.optim.Optimizer] = []
        if matrices:
            self._optimizers.append(Muon(matrices, muon_lr, weight_decay=weight_decay))
        if others:
            self._optimizers.append(torch.optim.AdamW(others, adamw_lr, betas=(0.9, 0.98), weight_decay=0.0))
        if not self._optimizers:
            raise ValueError("the model has no trainable parameters")
        self._peaks = [[float(group["lr"]) for group in opt.param_groups] for opt in self._optimizers]

    def step(self, multiplier: float) -> None:
        """Take one step at `multiplier` times the peak rates, then clear the gradients."""
        for optimizer, peaks in zip(self._optimizers, self._peaks, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * multiplier
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        """State of both optimizers, for a checkpoint."""
        return [optimizer.state_dict() for optimizer in self._optimizers]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        """Restore the state returned by `state_dict`."""
        for optimizer, state in zip(self._optimizers, states, strict=True):
            optimizer.load_state_dict(state)
