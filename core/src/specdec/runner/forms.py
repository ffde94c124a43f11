"""Chooses the forms of a model: asks every backend, and uses a form only if it agrees with the model."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Protocol

import torch

from specdec import registry
from specdec.errors import ModelError, described, line_of
from specdec.interfaces.backend import Declined
from specdec.interfaces.form import Form
from specdec.interfaces.forward import ForwardOutput, PackedBatch
from specdec.interfaces.runner import Runner
from specdec.runner.agreement import Agreement, agreement
from specdec.runner.own_forward import OwnForward

logger = logging.getLogger("specdec")

_COST = "the model's own forward runs instead, on the CPU two to four times slower"
"""Measured with SmolLM2-135M and the zoo's target, batch 1."""


class Measured(Runner, Protocol):
    """A runner whose own rounding is measured together with its forms."""

    rounding: float


def choose_forms(
    runner: Measured, stage: int, own: OwnForward, batch: PackedBatch, features: torch.Tensor | None
) -> list[Form]:
    """Return the forms of a model or of one stage of a head, outermost first; the last is its own forward.

    Args:
        runner: the runner; its `rounding` is set to the own forward's.
        stage: index of the stage.
        own: the own forward.
        batch: a short pass, which every form runs.
        features: `[T, F]` for heads.

    Raises:
        ModelError: if logits must be batch-invariant and no backend has such a form that agrees with the model.
    """
    forms: list[Form] = [own]
    reasons: list[str] = []
    reference = _Reference(runner, own, batch, features)
    for backend in reversed(registry.backends()):
        try:
            form = backend.form(runner, stage, forms[0])
            output = None if isinstance(form, Declined) else form.forward(batch, features)
        except Exception as error:  # the backend's own code, or a compiler
            reasons.append(f"{backend.name}: it raised {described(error)}{line_of(error)}")
            continue
        if isinstance(form, Declined) or output is None:
            if isinstance(form, Declined) and not form.is_elsewhere:
                reasons.append(f"{backend.name}: {form.reason}")
            continue
        found = reference.agreement(output)
        if found.holds:
            forms.insert(0, form)
        else:
            reasons.append(f"{backend.name}: its outputs are {found}")
    name = type(runner.module).__name__ + (f" (stage {stage})" if features is not None else "")
    why = (
        "; ".join(reversed(reasons)) or "no backend for this device is installed: pip install specdec-kernels"
    )
    if runner.is_invariant and not forms[0].is_invariant:
        raise ModelError(
            f"{name}: deterministic=True needs a form whose rows keep their bits in any pass, and there is none ({why}): leave "
            "deterministic out"
        )
    if len(forms) == 1:
        logger.warning("%s: no fused form (%s); %s", name, why, _COST)
    return forms


class _Reference:
    """A short pass in wider arithmetic, where the own forward's error is the measure of every form's.

    A module that deviates from a form's structure in a way that its parts do not show (scaled residuals, for example) thus
    falls back to its own forward.
    """

    def __init__(
        self, runner: Measured, own: OwnForward, batch: PackedBatch, features: torch.Tensor | None
    ) -> None:
        self._runner, self._own, self._given = runner, own, (batch, features)

    def agreement(self, output: ForwardOutput) -> Agreement:
        """Compare a form's output with the reference; sets the runner's `rounding`."""
        own, wide = self._outputs
        found = agreement(_compared(output), own, wide, self._runner.dtype)
        self._runner.rounding = found.own_error
        return found

    @cached_property
    def _outputs(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        return _compared(self._own.forward(*self._given)), _compared(self._own.forward_wide(*self._given))


def _compared(output: ForwardOutput) -> list[torch.Tensor]:
    """Return the outputs that are compared: logits, and hidden states where there are any."""
    return [output.logits] if output.hidden_states is None else [output.logits, output.hidden_states]
