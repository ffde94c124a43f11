"""Shared parts of the backend suite: settings, the backend, and models that it runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, TypeVar

import torch
from torch import nn

from specdec import registry
from specdec.interfaces import Backend, Declined
from specdec_runtime.backends import of_models
from specdec_runtime.interfaces import AttentionNeeds, Form, ModelBackend
from specdec_testing.support.conformance import Conformance, once_per_suite
from specdec_testing.support.fast_runner import FastRunner
from specdec_testing.support.subjects import path_of
from specdec_testing.support.target import Model, reference_model
from specdec_testing.support.tiny import DEFAULT_MODEL
from specdec_testing.support.verdicts import broken, described, not_applicable

Answer = TypeVar("Answer")
CPU = torch.device("cpu")
SAMPLERS = ("strict", "probabilistic", "block")
"""The samplers of our packages whose verification a backend may offer."""
DTYPES = (torch.float32, torch.bfloat16)


class BackendSuite(Conformance):
    """Settings and helpers of `BackendConformance`."""

    settings: ClassVar[frozenset[str]] = frozenset({"backend", "model"})

    backend: ClassVar[str | type[Backend]]
    """The backend: its name, its class, or a path such as `./file.py:Class`."""
    model: ClassVar[Model] = DEFAULT_MODEL
    """The model it runs: `zoo`, `tiny`, a directory, a hub id, or a model."""

    @property
    @once_per_suite
    def _name(self) -> str:
        """The name or path of the backend."""
        return self.backend if isinstance(self.backend, str) else path_of(self.backend)

    @property
    @once_per_suite
    def _made(self) -> Backend:
        return registry.backend(self._name)()

    @property
    def _models(self) -> ModelBackend:
        """The backend, asked about models."""
        return of_models(self._made)

    @property
    @once_per_suite
    def _device(self) -> torch.device:
        """The GPU, if there is one and the backend serves it, else the CPU."""
        cuda = torch.device("cuda")
        return cuda if torch.cuda.is_available() and _serves(self._made, cuda) else CPU

    def _ask(self, question: Callable[[], Answer | Declined]) -> Answer:
        """Return what the backend offers; the test does not apply if it declines."""
        try:
            answer = question()
        except Exception as error:
            broken(f"the question raised {described(error)}")
        if isinstance(answer, Declined):
            not_applicable(f"declined: {answer.reason}")
        return answer

    def _runner(
        self,
        dtype: torch.dtype = torch.float32,
        *,
        is_draft: bool = False,
        is_invariant: bool = False,
    ) -> FastRunner:
        """Return a runner whose model has the backend's form; the test does not apply if there is none."""
        model = reference_model(self.model)
        try:
            made = FastRunner(
                self._models, model, dtype, self._device, is_draft=is_draft, is_invariant=is_invariant
            )
        except Exception as error:
            broken(f"the question raised {described(error)}")
        if isinstance(made.form, Declined):
            not_applicable(f"declined: {made.form.reason}")
        if not isinstance(made.form, Form):
            broken(f"form returned {type(made.form).__name__}, neither a Form nor Declined")
        return made

    def _dtypes(self) -> list[torch.dtype]:
        """Return the dtypes that the backend has a form for; the test does not apply if there is none."""
        found = [dtype for dtype, reason in self._declined.items() if reason is None]
        if not found:
            not_applicable(f"declined: {next(iter(self._declined.values()))}")
        return found

    @property
    @once_per_suite
    def _declined(self) -> dict[torch.dtype, str | None]:
        """For each dtype why the backend has no form; None if it has one."""
        model = reference_model(self.model)
        forms = {dtype: FastRunner(self._models, model, dtype, self._device).form for dtype in DTYPES}
        return {d: form.reason if isinstance(form, Declined) else None for d, form in forms.items()}


def _serves(backend: Backend, device: torch.device) -> bool:
    """Return whether a backend answers for a device otherwise than that it serves others."""
    questions: list[Callable[[], object]] = [
        lambda: of_models(backend).attention(AttentionNeeds(device, torch.float32)),
        lambda: of_models(backend).linear(nn.Linear(2, 2).to(device)),
        lambda: backend.verifier("strict", device),
        lambda: backend.row_operations(device),
    ]
    try:
        answers = [question() for question in questions]
    except Exception:  # judged by a test
        return True
    return not any(isinstance(answer, Declined) and answer.is_elsewhere for answer in answers)


@contextmanager
def used_by_core(names: str) -> Iterator[list[str]]:
    """Make core ask these backends alone, within the context; yields what core warns about."""
    before = os.environ.get("SPECDEC_BACKENDS")
    handler = _Kept()
    logging.getLogger("specdec").addHandler(handler)
    os.environ["SPECDEC_BACKENDS"] = names
    try:
        yield handler.messages
    finally:
        logging.getLogger("specdec").removeHandler(handler)
        if before is None:
            del os.environ["SPECDEC_BACKENDS"]
        else:
            os.environ["SPECDEC_BACKENDS"] = before


class _Kept(logging.Handler):
    """Keeps warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.messages.append(record.getMessage())
