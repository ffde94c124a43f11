"""What a backend answers when core asks it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from specdec.interfaces import Declined, RowOperations
from specdec_runtime.interfaces import AttentionNeeds, Form
from specdec_runtime.runner import ModuleRunner
from specdec_testing.backends.suite import DTYPES, SAMPLERS, BackendSuite, used_by_core
from specdec_testing.support.fast_runner import MAX_CONTEXT, FastRunner, copied
from specdec_testing.support.target import reference_model
from specdec_testing.support.verdicts import broken, described

_LONGEST_REASON = 200


class AnswerTests(BackendSuite):
    """Every question is answered, and core accepts what is offered."""

    def test_every_question_is_answered(self, record_property: Callable[[str, object], None]) -> None:
        """Every method returns what it offers, or `Declined`, and raises nothing, on any device and for any dtype.

        To fix: return `Declined(reason)` for what you do not do; ask the device, the dtype and the module before importing
        or compiling anything that may be missing.
        """
        offers: dict[str, None] = {}
        for what, expected, answer in self._answers():
            if isinstance(answer, Declined):
                continue
            is_right = callable(answer) if expected is None else isinstance(answer, expected)
            if not is_right:
                wanted = "a callable" if expected is None else f"a {expected.__name__}"
                broken(f"{what} returned {type(answer).__name__}, neither {wanted} nor Declined")
            offers[what.partition("(")[0]] = None
        record_property("offers", ", ".join(offers) or "nothing")

    def test_a_reason_is_a_clause(self) -> None:
        """The reason of an answer `Declined` is a clause that completes "BACKEND: ...", such as "it has no attention".

        To fix: say in a few words and one line what is missing, without a period at the end.
        """
        for what, _, answer in self._answers():
            if isinstance(answer, Declined) and (problem := _problem(answer.reason)) is not None:
                broken(f"{what} declined with {answer.reason!r}, which {problem}")

    def test_core_takes_the_form(self) -> None:
        """The form of a model passes core's comparison at load: it is used, not left out with a warning.

        To fix: compute what the module's own forward computes; the largest error that is allowed is twice the own forward's.
        """
        for dtype in self._dtypes():
            module = copied(reference_model(self.model), dtype, self._device)
            with used_by_core(self._name) as warnings:
                answer = self._models.attention(AttentionNeeds(self._device, dtype))
                attention = None if isinstance(answer, Declined) else answer
                runner = ModuleRunner(module, self._device, MAX_CONTEXT, make_attention=attention)
            if len(runner.forms[0]) == 1:
                broken(f"{dtype}: {warnings[-1] if warnings else 'core left it out'}")

    def _answers(self) -> list[tuple[str, type | None, object]]:
        """Return every question that core may ask here, the type of what may be offered (None: a callable), and the answer."""
        backend, device = self._models, self._device
        questions: list[tuple[str, type | None, Callable[[], object]]] = []
        for dtype in (*DTYPES, torch.float16):
            needs = AttentionNeeds(device, dtype)
            module = nn.Linear(6, 5).to(device, dtype).requires_grad_(False)
            questions += [
                (f"attention({dtype})", None, lambda needs=needs: backend.attention(needs)),  # type: ignore[misc]
                (f"linear({dtype})", None, lambda module=module: backend.linear(module)),  # type: ignore[misc]
            ]
        for dtype in DTYPES:
            questions.append((f"form({dtype})", Form, lambda dtype=dtype: self._form(dtype)))  # type: ignore[misc]
        for sampler in (*SAMPLERS, "typical"):
            ask = lambda sampler=sampler: self._made.verifier(sampler, device)  # noqa: E731
            questions.append((f"verifier({sampler})", None, ask))
        questions.append(("row_operations()", RowOperations, lambda: self._made.row_operations(device)))
        answers: list[tuple[str, type | None, object]] = []
        for what, expected, question in questions:
            try:
                answers.append((what, expected, question()))
            except Exception as error:
                broken(f"{what} raised {described(error)}")
        return answers

    def _form(self, dtype: torch.dtype) -> object:
        return FastRunner(self._models, reference_model(self.model), dtype, self._device).form


def _problem(reason: object) -> str | None:
    """Return what is wrong with a reason."""
    if not isinstance(reason, str) or not reason.strip():
        return "is no text"
    if "\n" in reason or len(reason) > _LONGEST_REASON:
        return "is too long for a line"
    if len(reason.split()) < 2:
        return "is no clause"
    return "ends with a period" if reason.rstrip().endswith(".") else None
