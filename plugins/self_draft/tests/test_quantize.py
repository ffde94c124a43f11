"""Rounded weights: how far they are, what they are found again from, and what is refused."""

from __future__ import annotations

import pytest
import torch
from random_blocks import in_blocks
from speccheck.models import CONFIGS, make
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from specdec import LLM, ConfigError
from specdec_plugin_self_draft import SelfDraftConfig
from specdec_plugin_self_draft.form import _bits, quantize
from specdec_plugin_self_draft.quantize import is_found_again, quantized


def linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias, requires_grad=False)
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_eight_bits_are_within_half_a_step(dtype) -> None:
    torch.manual_seed(0)
    weight = torch.randn(7, 70).to(dtype)
    weight[3] = 0
    found = quantized(linear(weight), 8, 32).weight(torch.float32)
    steps = weight.float().abs().amax(1, keepdim=True) / 127
    assert ((found - weight.float()).abs() <= 0.501 * steps).all()
    assert (found[3] == 0).all()


@pytest.mark.parametrize("group_size", [32, 64])
def test_four_bits_are_within_half_a_step(group_size) -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 192)
    weight[2, :64] = 0
    found = quantized(linear(weight), 4, group_size).weight(torch.float32)
    groups, ours = weight.view(5, -1, group_size), found.view(5, -1, group_size)
    steps = (groups.amax(2, keepdim=True) - groups.amin(2, keepdim=True)) / 15
    assert ((ours - groups).abs() <= 0.56 * steps).all()  # scales and least values are rounded to bfloat16
    assert (found[2, :64] == 0).all()


@pytest.mark.parametrize("least", [-8.0, -7.3])
@pytest.mark.parametrize("span", [3, 7, 8, 11, 13, 15])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_had_four_bits_are_found_again(span, least, dtype) -> None:
    """Those of GGUF's Q4_0 and Q4_1, and of groups which use part of the numbers."""
    torch.manual_seed(0)
    numbers = torch.randint(0, span + 1, (6, 4, 32)).float()
    numbers[..., 5], numbers[..., 9] = 0, span
    scales = torch.rand(6, 4, 1).bfloat16().float()
    weight = ((numbers + least) * scales).flatten(1).to(dtype)
    assert is_found_again(weight, 32)
    found = quantized(linear(weight), 4, 32).weight(torch.float32)
    step = scales.expand(6, 4, 32).flatten(1)
    assert ((found - weight.float()).abs() <= 0.1 * step).all()


def test_other_weights_have_eight_bits_by_default() -> None:
    torch.manual_seed(0)
    some, other = nn.Linear(64, 48, bias=False), nn.Linear(64, 48, bias=False)
    assert not is_found_again(some.weight, 32)
    other.weight = nn.Parameter(quantized(some, 4, 32).weight(torch.float32))
    assert is_found_again(other.weight, 32)
    odd = nn.Linear(48, 64)

    def bits(wanted: str, *maps: nn.Linear, head: nn.Module | None = None) -> list[int]:
        names = {str(number): linear for number, linear in enumerate(maps)}
        return list(_bits(names, dict.fromkeys(names, wanted), head or odd, 32).values())

    assert bits("auto", other) == [4]
    assert bits("auto", other, some) == [8, 8]
    assert bits("auto", other, some, head=some) == [4, 8]
    assert bits("auto", odd) == [8]
    assert bits("int4", some) == [4]


def test_the_output_head_has_bits_of_its_own() -> None:
    config = SelfDraftConfig(num_speculative_tokens=2, weights="int8", head_weights="own")
    model = quantize(make(CONFIGS["llama"]()), config)
    assert type(model.get_output_embeddings()) is nn.Linear
    assert not [
        name for name, module in model.named_modules() if type(module) is nn.Linear and "head" not in name
    ]


def test_a_bias_is_added() -> None:
    torch.manual_seed(0)
    weight, bias, x = torch.randn(9, 64), torch.randn(9), torch.randn(2, 3, 64)
    made = quantized(linear(weight, bias), 8, 32)
    assert torch.allclose(made(x), x @ made.weight(torch.float32).T + bias, atol=1e-5)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="48 is not a power of two"):
        SelfDraftConfig(num_speculative_tokens=2, weights="int4", group_size=48)
    with pytest.raises(ValueError, match="group_size does nothing with int8"):
        SelfDraftConfig(num_speculative_tokens=2, weights="int8", group_size=64)
    with pytest.raises(ValueError, match="greater than or equal to 32"):
        SelfDraftConfig(num_speculative_tokens=2, group_size=16)
    with pytest.raises(ConfigError, match="'group_size': 256 does not divide"):
        LLM(
            "zoo",
            speculative_config={
                "method": "self",
                "num_speculative_tokens": 2,
                "weights": "int4",
                "group_size": 256,
            },
        )


def test_weights_that_are_in_blocks_are_no_cheaper_draft() -> None:
    config = LlamaConfig(
        vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    model = LlamaForCausalLM(config)
    for name, module in dict(in_blocks(model, {"": "Q4_0"})).items():
        model.set_submodule(name, module)
    with pytest.raises(
        ConfigError, match="'self' does not pay here: the target's weights have the few bits of its file"
    ):
        quantize(model, SelfDraftConfig.model_validate({"num_speculative_tokens": 4}))
    quantize(model, SelfDraftConfig.model_validate({"num_speculative_tokens": 4, "skip_layers": 1}))


class Packed(nn.Module):
    """A map of another library."""


def test_weights_that_another_library_reads_in_few_bits_are_no_cheaper_draft() -> None:
    config = LlamaConfig(
        vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    four = {"num_speculative_tokens": 4}
    widened, narrow = LlamaForCausalLM(config), LlamaForCausalLM(config)
    for name, module in list(narrow.named_modules()):
        if type(module) is nn.Linear and name != "lm_head":
            narrow.set_submodule(name, Packed())
    narrow.hf_quantizer = widened.hf_quantizer = object()
    with pytest.raises(ConfigError, match="'self' does not pay here"):
        quantize(narrow, SelfDraftConfig.model_validate(four))
    quantize(narrow, SelfDraftConfig.model_validate(four | {"skip_layers": 1}))
    quantize(widened, SelfDraftConfig.model_validate(four))
