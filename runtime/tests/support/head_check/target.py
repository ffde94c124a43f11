"""A small random target, and proposers of heads on it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from specdec.interfaces import TargetHandle
from specdec_runtime.drafting import RowsProposer
from specdec_runtime.runner import ModuleRunner
from specdec_testing.support.target import CheckTarget, check_target

VOCAB = 61
NUM_LAYERS = 8


@cache
def target_model(dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Return a Llama of eight layers whose states and logits are of order 1."""
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=40, num_hidden_layers=NUM_LAYERS, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, bos_token_id=None, eos_token_id=None,
        tie_word_embeddings=False,
    )  # fmt: skip
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                parameter.add_(0.1 * noise)
            else:
                parameter.copy_(noise * (0.7 if "embed" in name else parameter.shape[-1] ** -0.5))
    if model.generation_config is not None:
        model.generation_config.eos_token_id = None
    return model.to(dtype).eval()


def check() -> CheckTarget:
    """Return the target with an engine's scorer, made once."""
    return check_target(target_model())


@torch.inference_mode()
def states_of(text: list[int], aux: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    """Return the target's states at every position, the last and the inputs of some layers, by `transformers` alone."""
    out = target_model().base_model(torch.tensor([text]), use_cache=False, output_hidden_states=True)
    return (out.last_hidden_state[0], *(out.hidden_states[k][0] for k in aux))


def weights() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the target's embedding and output projection, each `[V, H]`."""
    model = target_model()
    return model.get_input_embeddings().weight.detach(), model.get_output_embeddings().weight.detach()


Head = TypeVar("Head", bound=RowsProposer)


def loaded(
    kind: type[Head], *, is_eager: bool = False, num_slots: int = 1024, is_draft: bool = False, **keys: Any
) -> Head:
    """Return a loaded proposer whose cache is poisoned where nothing has been written."""
    handle = check().handle
    runners: list[ModuleRunner] = []
    make = partial(_runner, handle, runners, is_eager, num_slots, is_draft)
    handle = replace(handle, runner_factory=make)
    proposer = kind(kind.Config(**{"num_speculative_tokens": 4, **keys}), handle.info)
    proposer.load(handle)
    assert all((len(forms) == 1) == is_eager for forms in runners[0].forms)
    for tensors in (runners[0].cache.keys, runners[0].cache.values):
        for tensor in tensors.values():
            tensor.fill_(float("nan"))
    return proposer


def _runner(
    handle: TargetHandle,
    made: list[ModuleRunner],
    is_eager: bool,
    num_slots: int,
    is_draft: bool,
    head: nn.Module,
) -> ModuleRunner:
    info = handle.info
    runner = ModuleRunner(head, info.device, info.max_model_len, is_fused=not is_eager, is_draft=is_draft)
    runner.allocate(num_slots)
    made.append(runner)
    return runner
