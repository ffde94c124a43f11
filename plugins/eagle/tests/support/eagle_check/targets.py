"""A small random target, and proposers on it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from eagle_check.layout import Layout, write_head
from eagle_check.reference import Reference
from eagle_check.shape import VOCAB, Shape, random_tensors
from specdec.interfaces import TargetHandle
from specdec.runner import ModuleRunner
from specdec_drafting import HeadProposer
from specdec_plugin_eagle import Eagle3Config, Eagle3Proposer, EagleConfig, EagleProposer
from specdec_testing.support.target import CheckTarget, check_target

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


def make_reference(shape: Shape, tensors: dict[str, torch.Tensor]) -> Reference:
    """Return the reference of a head on this target."""
    model = target_model()
    embedding, lm_head = model.get_input_embeddings(), model.get_output_embeddings()
    return Reference(shape, tensors, embedding.weight.detach(), lm_head.weight.detach())


def make_proposer(
    folder: str, shape: Shape, *, is_eager: bool = False, num_slots: int = 1024, **keys: Any
) -> HeadProposer:
    """Return a loaded proposer whose cache is poisoned where nothing has been written."""
    handle = check().handle
    runners: list[ModuleRunner] = []
    handle = replace(handle, runner_factory=partial(_runner, handle, runners, is_eager, num_slots))
    keys = {"num_speculative_tokens": 4, **keys, "model": folder}
    proposer: HeadProposer
    if shape.is_eagle3:
        proposer = Eagle3Proposer(Eagle3Config(**keys), handle.info)
    else:
        proposer = EagleProposer(EagleConfig(**keys), handle.info)
    proposer.load(handle)
    assert all((len(forms) == 1) == is_eager for forms in runners[0].forms)
    for tensors in (runners[0].cache.keys, runners[0].cache.values):
        for tensor in tensors.values():
            tensor.fill_(float("nan"))
    return proposer


def _runner(
    handle: TargetHandle, made: list[ModuleRunner], is_eager: bool, num_slots: int, head: nn.Module
) -> ModuleRunner:
    runner = ModuleRunner(head, handle.info.device, handle.info.max_model_len, is_fused=not is_eager)
    runner.allocate(num_slots)
    made.append(runner)
    return runner


def make_head(
    folder: Path, shape: Shape, layout: Layout | None = None, seed: int = 0
) -> tuple[str, dict[str, torch.Tensor]]:
    """Write a random head; returns its folder and tensors."""
    tensors = random_tensors(shape, seed)
    return write_head(folder, shape, tensors, layout), tensors
