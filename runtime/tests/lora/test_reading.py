"""Adapters in files: what is read as PEFT reads it, and what is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from specdec import ConfigError, EngineOptions, LoRARequest
from specdec_runtime.lora import Adapters, find_linear_maps

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


class Layer(nn.Module):
    """Two linear maps of all rows, one of a few, and one that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)
        self.expert, self.unused = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x)) + self.expert(x[:, :2]).sum()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """An adapter as PEFT saves it."""
    config = peft.LoraConfig(
        r=4, lora_alpha=6, target_modules=["up", "down"], rank_pattern={"down": 2}, alpha_pattern={"layers.1.up": 5},
        init_lora_weights=False,
    )  # fmt: skip
    made = peft.get_peft_model(Model(), config)
    made.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def adapters(model: nn.Module, **options: Any) -> Adapters:
    x = torch.randn(1, 5, 6)
    maps = find_linear_maps(model, 5, lambda: model(x))
    return Adapters(maps, torch.float32, EngineOptions(model="zoo", enable_lora=True, **options))


def test_only_maps_of_all_rows_are_found(model: Model) -> None:
    x = torch.randn(1, 5, 6)
    found = find_linear_maps(model, 5, lambda: model(x))
    linear = {
        name: (m.num_inputs, m.num_outputs) for name, m in found.items() if isinstance(m.module, nn.Linear)
    }
    assert linear == {
        f"layers.{n}.{name}": size for n in (0, 1) for name, size in (("up", (6, 8)), ("down", (8, 6)))
    }
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("is_rank_stabilised", [False, True])
def test_products_are_those_of_peft(model: Model, saved: Path, is_rank_stabilised: bool) -> None:
    config = json.loads((saved / CONFIG).read_text())
    (saved / CONFIG).write_text(json.dumps(config | {"use_rslora": is_rank_stabilised}))
    x = torch.randn(3, 6)
    loaded = adapters(model).load(LoRARequest("a", 1, str(saved)))
    theirs = peft.PeftModel.from_pretrained(model, saved).get_base_model()
    assert len(loaded.maps) == 4
    for layer in theirs.layers:
        torch.testing.assert_close(layer.up.base_layer(x) + loaded.maps[layer.up.base_layer](x), layer.up(x))
        y = torch.randn(3, 8)
        torch.testing.assert_close(
            layer.down.base_layer(y) + loaded.maps[layer.down.base_layer](y), layer.down(y)
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "IA3"}, "'peft_type' = 'IA3' is not served"),
        ({"use_dora": True}, "'use_dora' = True is not served: merge"),
        ({"bias": "all"}, "'bias' = 'all' is not served"),
        ({"modules_to_save": ["lm_head"]}, "'modules_to_save' = .* is not served"),
        ({"target_parameters": ["x"]}, "'target_parameters' = .* is not served"),
        ({"trainable_token_indices": [3]}, "'trainable_token_indices' = .* is not served"),
        ({"layer_replication": [[0, 1]]}, "'layer_replication' = .* is not served"),
        ({"alora_invocation_tokens": [3]}, "'alora_invocation_tokens' = .* is not served"),
        ({"a_key_of_later": 3}, "'a_key_of_later' = 3 is not served"),
        ({"init_lora_weights": "pissa"}, "'init_lora_weights' = 'pissa' changed the model's own weights"),
        ({"r": 17, "rank_pattern": {}}, "rank 17 is above max_lora_rank=16: raise that argument"),
        ({"rank_pattern": {"down": 32}}, "rank 32 is above max_lora_rank=16"),
        ({"r": "4"}, "'r' has '4', which is no rank"),
        ({"r": 0}, "'r' has 0, which is no rank"),
        ({"lora_alpha": None}, "'lora_alpha' has None, which is no number"),
        (
            {"r": 8},
            "lora_A of 'layers.0.up' has shape \\(4, 6\\), and \\(8, 6\\) fits the model and the rank",
        ),
        ({"target_modules": ["up", "down", "gate"]}, "has no tensors of gate: save the adapter again"),
    ],
)
def test_a_configuration_that_is_not_served(
    model: Model, saved: Path, changes: dict[str, Any], message: str
) -> None:
    config = json.loads((saved / CONFIG).read_text())
    (saved / CONFIG).write_text(json.dumps(config | changes))
    with pytest.raises(ConfigError, match=f"^adapter 'a': .*{message}"):
        adapters(model).load(LoRARequest("a", 1, str(saved)))


NAME = "base_model.model.layers.0.up."


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({NAME + "lora_A.weight": None}, "lora_A of 'layers.0.up' is missing"),
        ({NAME + "lora_B.weight": torch.zeros(4, 8)}, "lora_B of 'layers.0.up' has shape \\(4, 8\\), and \\(8, 4\\)"),
        ({NAME + "lora_magnitude_vector": torch.zeros(8)}, "'.*magnitude_vector': only lora_A and lora_B"),
        ({NAME + "base_layer.weight": torch.zeros(8, 6)}, "'.*base_layer.weight': only lora_A and lora_B"),
        ({NAME.replace("up", "expert") + "lora_A.weight": torch.zeros(4, 6)}, "changes 'layers.0.expert', which is"),
        ({NAME.replace("up", "gate") + "lora_A.weight": torch.zeros(4, 6)}, "changes 'layers.0.gate', which is"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit(
    model: Model, saved: Path, tensors: dict[str, torch.Tensor | None], message: str
) -> None:
    kept = load_file(saved / WEIGHTS) | tensors
    save_file({name: tensor for name, tensor in kept.items() if tensor is not None}, saved / WEIGHTS)
    with pytest.raises(ConfigError, match=f"^adapter 'a': .*{message}"):
        adapters(model).load(LoRARequest("a", 1, str(saved)))


def test_the_models_own_weights_beside_the_products_are_no_change(model: Model, saved: Path) -> None:
    own = {NAME + "base_layer.weight": model.layers[0].up.weight.detach()}
    save_file(load_file(saved / WEIGHTS) | own, saved / WEIGHTS)
    assert len(adapters(model).load(LoRARequest("a", 1, str(saved))).maps) == 4


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
@pytest.mark.parametrize("content", [None, b"", b"{]"])
def test_files_that_cannot_be_read(model: Model, saved: Path, name: str, content: bytes | None) -> None:
    if content is None:
        (saved / name).unlink()
    else:
        (saved / name).write_bytes(content)
    with pytest.raises(ConfigError, match=f"^adapter 'a': .*{name}"):
        adapters(model).load(LoRARequest("a", 1, str(saved)))


def test_adapters_stay_loaded_by_number_and_path(model: Model, saved: Path) -> None:
    loaded = adapters(model, max_cpu_loras=2)
    first, second = (loaded.load(LoRARequest("a", number, str(saved))) for number in (1, 2))
    assert first is not second
    assert first.key != second.key
    assert loaded.load(LoRARequest("other", 1, str(saved))) is first
    loaded.load(LoRARequest("a", 3, str(saved)))
    assert loaded.load(LoRARequest("a", 1, str(saved))) is first
    assert loaded.load(LoRARequest("a", 2, str(saved))) is not second  # was not used for longest


def test_named_adapters_are_loaded_at_once(model: Model, saved: Path) -> None:
    with pytest.raises(ConfigError, match=r"adapter 'a': '/no/such' has no adapter_config\.json"):
        adapters(model, lora_modules={"a": "/no/such"})
    options = EngineOptions(model="zoo", lora_modules=[{"name": "a", "path": str(saved)}])
    assert options.serves_adapters
    loaded = adapters(model, lora_modules={"a": str(saved)})
    assert loaded.load(options.adapters["a"]) is loaded.load(LoRARequest("a", 1, str(saved)))


@pytest.mark.parametrize(
    "arguments", [("", 1, "x"), ("a", 0, "x"), ("a", True, "x"), ("a", 1, ""), ("a", 1, None)]
)
def test_a_request_without_sense_is_refused(arguments: tuple[Any, Any, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^LoRARequest: lora_"):
        LoRARequest(*arguments)
