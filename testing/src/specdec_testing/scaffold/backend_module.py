"""The template of a new backend."""

BACKEND = '''\
"""$module: a backend, which runs models faster where it can."""

from __future__ import annotations

import torch

from specdec import hookimpl
from specdec.interfaces import Backend, Declined
from specdec_runtime.interfaces import Form, ForwardOutput, ModelBackend, PackedBatch, Runner


class Counted(Form):
    """Counts passes and gives each to the form inside it: run those that you can run faster."""

    is_fast = False  # leave this out where it runs some of them by itself

    def __init__(self, inner: Form) -> None:
        self._inner = inner
        self.is_invariant = inner.is_invariant
        self.num_passes = 0

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        self.num_passes += 1
        return self._inner.forward(batch, features)

    def counts(self) -> dict[str, int]:
        return {"${module}_passes": self.num_passes}


class $cls(ModelBackend):
    """Offers a form of every model; attention, verification and row operations may be offered likewise."""

    name = "$module"
    api_version = 1
    order = 5

    def form(self, runner: Runner, stage: int, inner: Form) -> Form | Declined:
        return Counted(inner)


@hookimpl
def specdec_register_backends() -> type[Backend]:
    return $cls
'''
