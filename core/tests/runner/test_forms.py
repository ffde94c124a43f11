"""Which forms of a model are used: a backend's that fails at load costs only speed."""

from __future__ import annotations

import logging

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from specdec import registry
from specdec.interfaces import Backend, Form, ForwardOutput, PackedBatch, Runner
from specdec.runner import ModuleRunner


class RaisingForm(Form):
    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        raise IndexError("index 8184 is out of bounds")


class FailsToRun(Backend):
    name = "fails_to_run"

    def form(self, runner: Runner, stage: int, inner: Form) -> Form:
        return RaisingForm()


class FailsToMake(Backend):
    name = "fails_to_make"

    def form(self, runner: Runner, stage: int, inner: Form) -> Form:
        raise OSError("no driver")


@pytest.mark.parametrize(
    ("backend", "told"),
    [(FailsToRun, "IndexError: index 8184 is out of bounds"), (FailsToMake, "OSError: no driver")],
)
def test_a_form_that_raises_is_left_out_with_its_reason(
    backend: type[Backend], told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registry, "backends", lambda: [backend()])
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2
    )
    with caplog.at_level(logging.WARNING, logger="specdec"):
        runner = ModuleRunner(AutoModelForCausalLM.from_config(config).eval(), torch.device("cpu"), 64)
    assert len(runner.forms[0]) == 1
    assert f"{backend.name}: it raised {told}" in caplog.text
