"""Which forms of a model are used: a backend's that fails at load costs only speed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

from specdec import registry
from specdec.config.notices import reset
from specdec.interfaces import Backend, RowOperations, Verify
from specdec.noise import row_operations
from specdec.noise.torch_rows import TorchRows
from specdec.samplers import StrictSampler
from specdec.samplers.torch_sampler import fast_verify
from specdec_runtime.backends import fast_linear, speed_up_linears
from specdec_runtime.backends.attention import choose_attention
from specdec_runtime.interfaces import (
    AttentionFactory,
    AttentionNeeds,
    Form,
    ForwardOutput,
    ModelBackend,
    PackedBatch,
    PassLimits,
    Runner,
)
from specdec_runtime.runner import ModuleRunner, SdpaAttention


class RaisingForm(Form):
    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        raise IndexError("index 8184 is out of bounds")


class FailsToRun(ModelBackend):
    name = "fails_to_run"

    def form(self, runner: Runner, stage: int, inner: Form) -> Form:
        return RaisingForm()


class FailsToMake(ModelBackend):
    name = "fails_to_make"

    def form(self, runner: Runner, stage: int, inner: Form) -> Form:
        raise OSError("no driver")


class FailsToWarmUp(ModelBackend):
    name = "fails_to_warm_up"

    def form(self, runner: Runner, stage: int, inner: Form) -> Form:
        return WarmUpRaises(inner)


class WarmUpRaises(Form):
    def __init__(self, inner: Form) -> None:
        self.forward = inner.forward  # type: ignore[method-assign]

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        raise NotImplementedError

    def warm_up(self, batch: PackedBatch, features: torch.Tensor | None) -> None:
        raise RuntimeError("out of registers")


class HalfAForm(Form):
    def __init__(self, inner: Form) -> None:
        self._inner = inner

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        return ForwardOutput(self._inner.forward(batch, features).logits[:1])


class LeavesRowsOut(ModelBackend):
    name = "leaves_rows_out"

    def form(self, runner: Runner, stage: int, inner: Form) -> Form:
        return HalfAForm(inner)


def make_runner() -> ModuleRunner:
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2
    )
    return ModuleRunner(AutoModelForCausalLM.from_config(config).eval(), torch.device("cpu"), 64)


@pytest.mark.parametrize(
    ("backend", "told"),
    [
        (FailsToRun, "fails_to_run: it raised IndexError: index 8184 is out of bounds"),
        (FailsToMake, "fails_to_make: it raised OSError: no driver"),
        (
            LeavesRowsOut,
            "leaves_rows_out: its outputs have shapes [(1, 64)], the model's own [(16, 64)]",
        ),
        (FailsToWarmUp, "WarmUpRaises: its warm-up raised RuntimeError: out of registers"),
    ],
)
def test_a_form_that_fails_at_load_is_left_out_with_its_reason(
    backend: type[Backend], told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registry, "backends", lambda: (backend(),))
    with caplog.at_level(logging.WARNING, logger="specdec"):
        runner = make_runner()
    assert len(runner.forms[0]) == 1
    assert told in caplog.text


class WatchingForm(Form):
    is_fast = False

    def __init__(self, inner: Form) -> None:
        self._inner = inner

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        return self._inner.forward(batch, features)


ATTRIBUTES = ("is_fast", "is_invariant", "uses_attention", "chain")


class RaisesLate(ModelBackend):
    """Its form raises where something else than a pass is asked of it, from a time on.

    Args:
        what: the attribute or method.
        calls: how often that works before.
    """

    name = "late"

    def __init__(self, what: str, calls: int = 0) -> None:
        self._what, self._left = what, calls

    def form(self, runner: Runner, stage: int, inner: Form) -> Form:
        def failing(*_: object) -> dict[str, int]:
            self._left -= 1
            if self._left < 0:
                raise OSError("no driver")
            return {}

        member = property(failing) if self._what in ATTRIBUTES else failing
        return type("Late", (WatchingForm,), {self._what: member})(inner)


LATE = [*((what, 0) for what in ATTRIBUTES), *product(("counts", "levels", "prepare", "rebind"), (0, 1, 2))]


@pytest.mark.parametrize(("what", "calls"), LATE)
def test_a_form_that_raises_elsewhere_than_in_a_pass_costs_its_place_alone(
    what: str, calls: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reset()
    monkeypatch.setattr(registry, "backends", lambda: (RaisesLate(what, calls),))
    with caplog.at_level(logging.WARNING, logger="specdec"):
        runner = make_runner()
        runner.allocate(64)
        for _ in range(3):
            runner.prepare(PassLimits(num_requests=2, num_rows=64, num_logits=2))
            runner.allocate(64)
            assert runner.counts() == {"unfused_models": 1, "adapter_passes": 0}
            assert runner.levels() == {}
    told = [record.getMessage() for record in caplog.records if "no driver" in record.getMessage()]
    assert len(told) == 1
    assert len(runner.forms[0]) == (2 if what in ("counts", "levels") and calls else 1)


class WatchesAndMultiplies(ModelBackend):
    """Counts passes, and has products for models whose own forward runs."""

    name = "watches"

    def __init__(self) -> None:
        self.asked = 0

    def form(self, runner: Runner, stage: int, inner: Form) -> Form:
        return WatchingForm(inner)

    def linear(self, module: nn.Linear) -> Callable[[torch.Tensor], torch.Tensor]:
        self.asked += 1
        return module.forward


def test_a_form_that_only_watches_leaves_the_model_as_slow_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backend = WatchesAndMultiplies()
    monkeypatch.setattr(registry, "backends", lambda: (backend,))
    with caplog.at_level(logging.WARNING, logger="specdec"):
        runner = make_runner()
    assert len(runner.forms[0]) == 2
    assert "no fused form" in caplog.text
    assert runner.counts()["unfused_models"] == 1
    assert backend.asked > 0


class RaisesEverywhere(ModelBackend):
    """A broken driver: every question raises."""

    name = "broken"

    def form(self, runner: Runner, stage: int, inner: Form) -> Form:
        raise OSError("no driver")

    def attention(self, needs: AttentionNeeds) -> AttentionFactory:
        raise OSError("no driver")

    def linear(self, module: nn.Linear) -> Callable[[torch.Tensor], torch.Tensor]:
        raise OSError("no driver")

    def verifier(self, sampler: str, device: torch.device) -> Verify:
        raise OSError("no driver")

    def row_operations(self, device: torch.device) -> RowOperations:
        raise OSError("no driver")


class Outermost(ModelBackend):
    """Runs every pass by the form inside its own, and says that this is fast."""

    name = "outermost"

    def form(self, runner: Runner, stage: int, inner: Form) -> Form:
        form = WatchingForm(inner)
        form.is_fast = True  # type: ignore[misc]  # of this one alone
        return form


def test_a_broken_form_is_told_also_where_another_is_fast(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backends = (Outermost(), RaisesEverywhere())
    monkeypatch.setattr(registry, "backends", lambda: backends)
    with caplog.at_level(logging.WARNING, logger="specdec"):
        runner = make_runner()
    assert len(runner.forms[0]) == 2
    [record] = caplog.records
    told = f"LlamaForCausalLM: a form is not used (broken: it raised OSError: no driver at {__file__}:"
    assert record.getMessage().startswith(told)


class WrongProduct(ModelBackend):
    name = "wrong"

    def linear(self, module: nn.Linear) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: 1.01 * module(x)


CPU = torch.device("cpu")
QUESTIONS: dict[str, Callable[[], object]] = {
    "the attention of backend broken is not used: it raised": lambda: choose_attention(
        "auto", AttentionNeeds(CPU, torch.float32), LlamaConfig(), SdpaAttention
    ),
    "the product of backend broken is not used: it raised": lambda: fast_linear(nn.Linear(3, 4)),
    "the 'strict' verification of backend broken is not used: it raised": lambda: fast_verify(
        StrictSampler, CPU, registry.backends()
    ),
    "the operations on rows of logits of backend broken is not used: it raised": lambda: row_operations(CPU),
}


@pytest.mark.parametrize("told", QUESTIONS)
def test_a_question_that_raises_costs_the_backend_its_place(
    told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backends = (RaisesEverywhere(),)
    monkeypatch.setattr(registry, "backends", lambda: backends)
    answer = QUESTIONS[told]()
    assert answer is None or answer is SdpaAttention or isinstance(answer, TorchRows)
    assert f"{told} OSError: no driver at {__file__}:" in caplog.text


def test_a_product_is_compared_before_it_is_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registry, "backends", lambda: (WrongProduct(),))
    assert fast_linear(nn.Linear(8, 8)) is None
    assert "the product of backend wrong is not used: it differs from torch's by 1.0e-02" in caplog.text


class AsksForProducts(ModelBackend):
    """Its form asks for the product of each linear map, as fused layers do."""

    name = "asks"

    def form(self, runner: Runner, stage: int, inner: Form) -> Form:
        for module in maps_of(runner.module):
            assert fast_linear(module) is None
        return WatchingForm(inner)


def maps_of(module: nn.Module) -> list[nn.Linear]:
    return [part for part in module.modules() if type(part) is nn.Linear]


def test_a_product_that_is_not_used_is_told_once_for_all_maps(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backends: tuple[Backend, ...] = (WrongProduct(),)
    monkeypatch.setattr(registry, "backends", lambda: backends)
    speed_up_linears(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))  # a proposer's network
    count = len(maps_of(make_runner().module))
    backends = (WrongProduct(), AsksForProducts())
    make_runner()
    told = [record.getMessage() for record in caplog.records if "the product" in record.getMessage()]
    for text, number in zip(told, (2, count, 2 * count), strict=True):
        assert text.startswith(
            f"the product of backend wrong is not used for {number} modules: it differs from torch's by "
        )


def test_a_warning_names_the_variable_that_leaves_backends_out(
    site: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.install("fast", {"backends": {"zippy": "zippy"}}, {})
    monkeypatch.setenv("SPECDEC_BACKENDS", "")
    make_runner()
    assert "zippy: unset it" in caplog.text
    assert "SPECDEC_BACKENDS= leaves out " in caplog.text
    assert "pip install" not in caplog.text
