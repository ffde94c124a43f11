"""Faster forms are held against a forward in wider arithmetic, not against the rounding of the model's own."""

from __future__ import annotations

import logging

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaModel, PreTrainedModel

from specdec_runtime.backends.comparison import FACTOR, agreement, in_wider_arithmetic
from specdec_runtime.interfaces import DraftHead
from specdec_runtime.runner import ModuleRunner

SIZES = {
    "vocab_size": 61,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def make_model(config: LlamaConfig, dtype: torch.dtype) -> PreTrainedModel:
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def runner_of(model: PreTrainedModel) -> ModuleRunner:
    return ModuleRunner(model, torch.device("cpu"), 64)


def test_a_model_that_rounds_much_keeps_its_fused_form() -> None:
    runner = runner_of(make_model(LlamaConfig(**SIZES), torch.bfloat16))
    assert runner.rounding > 3e-2  # further from float32 than was once allowed between the two forms
    assert runner.counts()["unfused_models"] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_variation_that_the_parts_do_not_show_is_refused_aloud(
    dtype: torch.dtype, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_model(LlamaConfig(**SIZES | {"num_hidden_layers": 4}), dtype)
    model.model.layers[1].self_attn.register_forward_hook(lambda _, __, output: (output[0] / 2, *output[1:]))
    with caplog.at_level(logging.WARNING, "specdec"):
        runner = runner_of(model)
    assert runner.counts()["unfused_models"] == 1
    (message,) = caplog.messages
    assert message.startswith("LlamaForCausalLM: no fused form (cpu: its outputs are ")
    assert "; layers: its outputs are " in message
    assert "slower" in message


def test_wider_arithmetic_is_that_of_a_wider_copy() -> None:
    model = make_model(LlamaConfig(**SIZES), torch.bfloat16)
    copy = make_model(LlamaConfig(**SIZES), torch.bfloat16).float()
    before = dict(model.named_parameters())
    ids = torch.tensor([[3, 14, 15, 9, 2, 6]])
    with torch.no_grad(), in_wider_arithmetic(model, torch.float32):
        got = model(ids).logits
    with torch.no_grad():
        torch.testing.assert_close(got, copy(ids).logits, rtol=0, atol=0)
    after = dict(model.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items())


def test_weights_come_back_after_a_failure() -> None:
    model = make_model(LlamaConfig(**SIZES), torch.bfloat16)
    before = dict(model.named_parameters())
    with pytest.raises(IndexError), in_wider_arithmetic(model, torch.float32):
        model(torch.tensor([[1000]]))
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_the_worst_output_decides_and_a_number_that_is_none_is_refused() -> None:
    exact = torch.ones(100, dtype=torch.float64)
    own = exact * (1 + 0.1)
    near, far = exact * (1 + 0.9 * FACTOR * 0.1), exact * (1 + 1.1 * FACTOR * 0.1)
    assert agreement([near], [own], [exact], torch.bfloat16).holds
    assert not agreement([near, far], [own, own], [exact, exact], torch.bfloat16).holds
    assert not agreement([far, near], [own, own], [exact, exact], torch.bfloat16).holds
    assert not agreement([near, exact * float("nan")], [own] * 2, [exact] * 2, torch.bfloat16).holds


class Unnamed(DraftHead):
    """A head with one layer of Llama that does not say what it is made of."""

    def __init__(self) -> None:
        config = LlamaConfig(**SIZES | {"num_hidden_layers": 1})
        super().__init__(config, feature_size=48, num_logits=61)
        config._attn_implementation = "sdpa"
        self.model = LlamaModel(config)
        self.lm_head = torch.nn.Linear(48, 61, bias=False)

    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, features: torch.Tensor, stage: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.model.embed_tokens(input_ids) + features
        states = self.model(inputs_embeds=x, position_ids=position_ids, use_cache=False).last_hidden_state
        return states, states

    def project(self, states: torch.Tensor, stage: int = 0) -> torch.Tensor:
        return self.lm_head(states)  # type: ignore[no-any-return]


def test_a_head_without_a_compiled_form_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "specdec"):
        runner = ModuleRunner(Unnamed().eval(), torch.device("cpu"), 64)
    assert runner.counts()["unfused_models"] == 1
    (message,) = caplog.messages
    assert message.startswith("Unnamed (stage 0): no fused form (cpu: its layers are not those of Llama; ")
    assert "slower" in message
