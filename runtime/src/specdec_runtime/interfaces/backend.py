"""A backend that also runs models: faster code for what the scorer of `transformers` models does with torch.

The scorer runs a model's own forward. Before that it asks the installed backends in order, as core does for verification, and
compares what they offer with its own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from specdec.interfaces import Backend, Declined, PassMemory
from specdec_runtime.interfaces.attention import AttentionFactory, AttentionNeeds
from specdec_runtime.interfaces.blocks import BlockLinear
from specdec_runtime.interfaces.form import Form
from specdec_runtime.interfaces.quantized import QuantizedLinear
from specdec_runtime.interfaces.runner import Runner
from specdec_runtime.interfaces.steps import StepLoop, Steps


class ModelBackend(Backend):
    """Faster implementations of a model's passes, attention and products. Every method may decline; the defaults do."""

    def answers(self, device: torch.device) -> dict[str, object]:
        """Return what it offers on a device; see `Backend.answers`."""
        answers = {
            "attention": self.attention(AttentionNeeds(device, torch.float32)),
            **super().answers(device),
        }
        is_elsewhere = any(
            isinstance(answer, Declined) and answer.is_elsewhere for answer in answers.values()
        )
        has_forms = type(self).form is not ModelBackend.form and not is_elsewhere
        return ({"forms of models": self.form} if has_forms else {}) | answers

    def attention(self, needs: AttentionNeeds) -> AttentionFactory | Declined:
        """Return a factory of attention over a cache."""
        return Declined("it has no attention")

    def form(self, runner: Runner, stage: int, inner: Form) -> Form | Declined:
        """Return a faster form of a runner's model, or of one stage of its head.

        Args:
            runner: the runner, with its module, cache and attention.
            stage: index of the stage; 0 for models.
            inner: the next form, for passes that this one does not take.
        """
        return Declined("it has no form of models")

    def linear(
        self, module: nn.Linear | BlockLinear | QuantizedLinear
    ) -> Callable[[torch.Tensor], torch.Tensor] | Declined:
        """Return a faster forward `[..., in] -> [..., out]` of a frozen linear module.

        That of a `QuantizedLinear` is for rows in bfloat16, and used for as many as it is faster for, by measurement.
        """
        return Declined("it has no products")

    def steps(self, steps: Steps, given: torch.Tensor, memory: PassMemory) -> StepLoop | Declined:
        """Return a draft loop of steps that need no cache.

        Args:
            steps: gives logits.
            given: `[...]` what a request begins with, for sizes, dtype and device.
            memory: where the target's verification leaves its verdicts.
        """
        return Declined("it has no draft loops without a cache")
