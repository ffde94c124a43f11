"""Chooses the forms of a model: asks every backend, and uses a form only if it agrees with the model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import torch

from specdec import registry
from specdec.backends import Rejected, tried
from specdec.config import notice
from specdec.errors import ModelError, described, line_of
from specdec.interfaces import Declined
from specdec_runtime.backends.comparison import agreement
from specdec_runtime.backends.models import of_models
from specdec_runtime.interfaces.form import Form
from specdec_runtime.interfaces.forward import ForwardOutput, PackedBatch
from specdec_runtime.interfaces.runner import Runner

Pass = Callable[[PackedBatch, torch.Tensor | None], ForwardOutput]

logger = logging.getLogger("specdec")

_COST = "the model's own forward runs instead, on the CPU two to four times slower"
"""Measured with SmolLM2-135M and the zoo's target, batch 1."""


def choose_forms(
    runner: Runner, stage: int, own: Form, wide: Pass, batch: PackedBatch, features: torch.Tensor | None
) -> list[Form]:
    """Return the forms of a model or of one stage of a head, outermost first; the last is its own forward.

    Args:
        runner: the runner; its `rounding` is set to the own forward's, and `agreed` to what was compared.
        stage: index of the stage.
        own: the own forward.
        wide: the same in wider arithmetic.
        batch: a short pass, which every form runs.
        features: `[T, F]` for heads.

    Raises:
        ModelError: if logits must be batch-invariant and no backend has such a form that agrees with the model.
    """
    forms: list[Form] = [own]
    reasons, rejected = list[str](), list[str]()

    @cache
    def references() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        return _compared(own.forward(batch, features)), _compared(wide(batch, features))

    def disagreement(form: Form) -> str | None:
        """Return how a form's outputs differ from those in wider arithmetic, where the own forward's error is the measure.

        A module that deviates from a form's structure in a way that its parts do not show (scaled residuals, for example)
        thus falls back to its own forward.
        """
        # What else is asked of it must not raise later.
        _ = form.is_fast, form.is_invariant, form.uses_attention, form.chain, form.counts(), form.levels()
        outputs, (theirs, exact) = _compared(form.forward(batch, features)), references()
        shapes = [[tuple(output.shape) for output in one] for one in (outputs, theirs)]
        if shapes[0] != shapes[1]:
            return f"its outputs have shapes {shapes[0]}, the model's own {shapes[1]}"
        found = agreement(outputs, theirs, exact, runner.dtype)
        runner.rounding = found.own_error
        return None if found.holds else f"its outputs are {found}"

    for backend in reversed(registry.backends()):
        known = (stage, backend.name) in runner.agreed
        form = tried(
            backend,
            lambda asked: of_models(asked).form(runner, stage, forms[0]),
            _none if known else disagreement,
        )
        if not isinstance(form, Declined):
            forms.insert(0, form)
            runner.agreed.add((stage, backend.name))
        elif not form.is_elsewhere:
            reasons.append(f"{backend.name}: {form.reason}")
            rejected += reasons[-1:] if isinstance(form, Rejected) else ()
    name = type(runner.module).__name__ + (f" (stage {stage})" if features is not None else "")
    why = "; ".join(reversed(reasons)) or registry.why_no_backend()
    _check_invariance(runner, forms, f"{name}: ", why)
    if not is_fast(forms):
        logger.warning("%s: no fused form (%s); %s", name, why, _COST)
    elif rejected:
        logger.warning("%s: a form is not used (%s)", name, "; ".join(reversed(rejected)))
    return forms


def _none(form: Form) -> None:
    """Take a form as it is."""


def is_fast(forms: list[Form]) -> bool:
    """Return whether one of a model's forms runs passes by itself, other than its own forward."""
    return any(form.is_fast for form in forms)


def keep_working(runner: Runner, forms: list[Form], what: str, call: Callable[[Form], None]) -> None:
    """Call forms, innermost first; one that raises is removed, together with those around it.

    Raises:
        ModelError: if logits must be batch-invariant and no form that is left has such rows.
    """
    call(forms[-1])
    for form in reversed(forms[:-1]):
        try:
            call(form)
        except Exception as error:  # the backend's own code, or a compiler
            why = f"{type(form).__name__}: its {what} raised {described(error)}{line_of(error)}"
            logger.warning("a fused form is not used (%s); it runs up to four times slower without", why)
            del forms[: forms.index(form) + 1]
            _check_invariance(runner, forms, "", why)
            return


def numbers_of(forms: Iterable[Form], kind: str) -> Iterator[dict[str, int]]:
    """Yield the `counts` or `levels` of forms; one that raises has none, which is told once."""
    for form in forms:
        try:
            yield getattr(form, kind)()
        except Exception as error:  # the backend's own code
            why = f"{type(form).__name__}.{kind} raised {described(error)}{line_of(error)}"
            notice(
                why,
                f"metrics of a fused form are missing ({why}); output is not affected, this is logged once",
            )


def _check_invariance(runner: Runner, forms: list[Form], name: str, why: str) -> None:
    if runner.is_invariant and not forms[0].is_invariant:
        raise ModelError(
            f"{name}deterministic=True needs a form whose rows keep their bits in any pass, and there is none ({why}): leave "
            "deterministic out"
        )


def _compared(output: ForwardOutput) -> list[torch.Tensor]:
    """Return the outputs that are compared: logits, and hidden states where there are any."""
    return [output.logits] if output.hidden_states is None else [output.logits, output.hidden_states]
