"""How much a layer asks of a device: counted on CPU tensors, with the kernels' references in place of the kernels.

Attention over long contexts takes a second launch, which combines the shares of a row.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from speccheck.models import CONFIGS, make
from torch.utils._python_dispatch import TorchDispatchMode

from specdec_kernels.cuda import attention as cuda_attention
from specdec_kernels.layers import device_form, device_layer
from specdec_kernels.layers.device_form import DeviceForm
from specdec_kernels.layers.parts import ModelParts
from specdec_kernels.layers.structure import model_parts
from specdec_runtime.interfaces import ForwardOutput, PackedBatch, Segment
from specdec_runtime.runner import ModuleRunner

CPU = torch.device("cpu")
FREE = {
    "view", "_unsafe_view", "reshape", "split", "split_with_sizes", "slice", "select", "t", "transpose", "permute", "expand",
    "unsqueeze", "squeeze", "as_strided", "detach", "alias", "empty", "empty_like", "new_empty", "empty_strided",
}  # fmt: skip
"""Operations that launch nothing."""
KERNELS = (
    (device_layer, "matmul_invariant"),
    (device_layer, "rms_norm"),
    (device_layer, "silu_mul"),
    (cuda_attention, "rope_kv_write"),
    (cuda_attention, "paged_attention"),
)


class Launches(TorchDispatchMode):
    """Counts operations, and calls of kernels as one each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._is_inside = False
        for module, name in KERNELS:
            monkeypatch.setattr(module, name, self._counted(name, getattr(module, name)))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[-1]
        if not self._is_inside and name not in FREE:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))

    def _counted(self, name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.counts[name] += 1
            self._is_inside = True
            try:
                return function(*args, **kwargs)
            finally:
                self._is_inside = False

        return call


def step(num_requests: int) -> PackedBatch:
    """A token of each of some requests, 32 slots apart, without cached tokens."""
    segments = [Segment(row, 1, 32 * row, 0) for row in range(num_requests)]
    slots = torch.arange(num_requests) * 32
    return PackedBatch(torch.arange(num_requests) + 3, torch.zeros_like(slots), segments, slots, None)


def made(name: str, num_layers: int) -> tuple[DeviceForm, ModuleRunner]:
    config = CONFIGS[name]()
    config.num_hidden_layers = num_layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:1] * num_layers
    model = make(config)
    runner = ModuleRunner(model, CPU, 32, is_fused=False, make_attention=cuda_attention.PagedAttention)
    runner.allocate(256)
    parts = model_parts(model, runner.windows)
    assert isinstance(parts, ModelParts)
    assert parts.is_llama
    return DeviceForm(parts, runner, is_invariant=True), runner


@pytest.mark.parametrize(("name", "most"), [("llama", 9), ("qwen3", 9)])
@pytest.mark.parametrize("num_requests", [1, 6])
def test_a_layer_takes_few_launches(name: str, most: int, num_requests: int, monkeypatch) -> None:
    for module in (device_form, cuda_attention):
        monkeypatch.setattr(module, "kernels_on", lambda device: nullcontext())
    totals = []
    for num_layers in (1, 3):
        form, runner = made(name, num_layers)
        batch = step(num_requests)
        with torch.no_grad():  # inference mode would hand composite operations over whole
            form.forward(batch, None)  # what is made once
            with monkeypatch.context() as patch, Launches(patch) as launches:
                output = form.forward(batch, None)
            own: ForwardOutput = runner.forms[0][-1].forward(batch, None)
        totals.append(sum(launches.counts.values()))
        torch.testing.assert_close(output.logits, own.logits, rtol=1e-4, atol=1e-4)
    assert (totals[1] - totals[0]) / 2 <= most
    assert launches.counts["paged_attention"] == 3
