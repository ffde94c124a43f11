"""Tiny models with integer weights in the formats of GPTQ, AWQ and compressed-tensors, written as these document them."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from speccheck.models import BASE, make
from torch import Tensor, nn
from transformers import LlamaConfig, PreTrainedModel

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The output that each place of a word has, in AWQ's files."""


@dataclass(frozen=True)
class Integers:
    """How weights are written."""

    form: str
    """`gptq`, `gptq_v2`, `gemm` (AWQ), `pack-quantized` or `int-quantized`."""
    bits: int = 4
    group: int = 128
    """Inputs of a group; -1 for all of them."""
    is_symmetric: bool = False
    is_shuffled: bool = False
    """Whether the inputs of a group lie anywhere (act-order)."""

    @property
    def config(self) -> dict[str, Any]:
        """`quantization_config`."""
        if self.form.startswith("gptq"):
            return {
                "quant_method": "gptq", "bits": self.bits, "group_size": self.group, "sym": self.is_symmetric,
                "desc_act": self.is_shuffled, "checkpoint_format": self.form,
            }  # fmt: skip
        if self.form == "gemm":
            return {
                "quant_method": "awq", "bits": self.bits, "group_size": self.group, "zero_point": True, "version": "gemm"
            }  # fmt: skip
        weights = {
            "num_bits": self.bits, "type": "int", "symmetric": self.is_symmetric,
            "strategy": "channel" if self.group == -1 else "group", "group_size": None if self.group == -1 else self.group,
        }  # fmt: skip
        groups = {"group_0": {"targets": ["Linear"], "weights": weights, "format": self.form}}
        return {
            "quant_method": "compressed-tensors", "format": self.form, "config_groups": groups, "ignore": ["lm_head"],
            "quantization_status": "compressed",
        }  # fmt: skip


def tiny_llama(dtype: torch.dtype = torch.float16) -> PreTrainedModel:
    """Return a model whose maps have whole groups of 128 inputs."""
    sizes = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}
    return make(LlamaConfig(**BASE | sizes), seed=5).to(dtype)


def write(folder: Path, how: Integers, model: PreTrainedModel | None = None) -> PreTrainedModel:
    """Write a model's checkpoint into a folder and return the same model with the weights widened, in float32.

    Args:
        folder: the folder, which is made.
        how: how weights are written.
        model: whose linear maps of whole groups are rounded, but not the output projection; a tiny Llama by default.
    """
    model = model or tiny_llama()
    head = model.get_output_embeddings()
    tensors = dict(model.state_dict())
    wide = (
        type(model)(copy.deepcopy(model.config)).float().eval()
    )  # whose rotary frequencies were not rounded
    wide.load_state_dict(tensors)
    for name, part in model.named_modules():
        if type(part) is nn.Linear and part is not head and part.in_features % max(how.group, 1) == 0:
            weight = tensors.pop(f"{name}.weight").float()
            codes, scales, zeros, groups = rounded(weight, how)
            exact = (codes - zeros[:, groups]).double() * scales.double()[:, groups]
            wide.get_submodule(name).weight.data = exact.float()
            scales = scales.to(model.dtype)
            tensors |= {f"{name}.{k}": v for k, v in _tensors(how, codes, scales, zeros, groups).items()}
    _save(folder, model, tensors, how.config)
    return wide


def rounded(weight: Tensor, how: Integers) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return codes `[N, K]`, scales and zeros `[N, groups]` and the group of each input, by rounding to nearest."""
    num_out, depth = weight.shape
    size = depth if how.group == -1 else how.group
    order = torch.arange(depth)
    if how.is_shuffled:
        order = torch.randperm(depth, generator=torch.Generator().manual_seed(depth))
    blocks, most = weight[:, order].view(num_out, -1, size), 2**how.bits - 1
    low, high = blocks.amin(2), blocks.amax(2)
    if how.is_symmetric:
        high = torch.maximum(-low, high)
        low = -high
    scales = ((high - low) / most).to(torch.bfloat16).float()  # which is exact in both dtypes of 16 bits
    zeros = (-low / scales).round().clamp(0, most)
    if how.is_symmetric:
        zeros = torch.full_like(zeros, (most + 1) // 2)
    groups = torch.empty_like(order)
    groups[order] = torch.arange(depth) // size
    codes = (weight / scales[:, groups] + zeros[:, groups]).round().clamp(0, most)
    return codes.int(), scales, zeros.int(), groups


def _tensors(
    how: Integers, codes: Tensor, scales: Tensor, zeros: Tensor, groups: Tensor
) -> dict[str, Tensor]:
    """Return the tensors of a linear map as its format has them."""
    if how.form.startswith("gptq"):
        stored = zeros - 1 if how.form == "gptq" else zeros
        return {
            "qweight": packed(codes, how.bits).T, "qzeros": packed(stored.T & 2**how.bits - 1, how.bits), "scales": scales.T,
            "g_idx": groups.int(),
        }  # fmt: skip
    if how.form == "gemm":
        return {
            "qweight": packed(_in_awq_order(codes.T), 4), "qzeros": packed(_in_awq_order(zeros.T), 4), "scales": scales.T
        }  # fmt: skip
    found = {"weight_scale": scales}
    if how.form == "int-quantized":
        middle = 2 ** (how.bits - 1)
        found["weight"] = (codes - middle).to(torch.int8)
        return found | ({} if how.is_symmetric else {"weight_zero_point": (zeros - middle).to(torch.int8)})
    found |= {"weight_packed": packed(codes, how.bits), "weight_shape": torch.tensor(codes.shape)}
    if how.is_shuffled:
        found["weight_g_idx"] = groups.int()
    return found | ({} if how.is_symmetric else {"weight_zero_point": packed(zeros.T, how.bits).T})


def packed(codes: Tensor, bits: int) -> Tensor:
    """Return words `[R, C * bits / 32]` of codes `[R, C]`, the first one lowest."""
    words = codes.long().reshape(len(codes), -1, 32 // bits) << torch.arange(0, 32, bits)
    return words.sum(2).to(torch.int32)


def _in_awq_order(codes: Tensor) -> Tensor:
    return codes.reshape(len(codes), -1, 8)[..., _AWQ_ORDER].reshape(len(codes), -1)


def write_fp8(folder: Path) -> PreTrainedModel:
    """Write a tiny model in float8 with a scale for 64 x 128 weights, and return it widened to float32."""
    model = tiny_llama(torch.bfloat16)
    wide = type(model)(copy.deepcopy(model.config)).float().eval()
    tensors = dict(model.state_dict())
    wide.load_state_dict(tensors)
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        blocks = tensors[name].float().unflatten(1, (-1, 128)).unflatten(0, (-1, 64))
        scales = blocks.abs().amax((1, 3), keepdim=True) / 448
        codes = (blocks / scales).to(torch.float8_e4m3fn)
        wide.get_parameter(name).data = (codes.float() * scales).view(tensors[name].shape)
        tensors |= {name: codes.view(tensors[name].shape), f"{name}_scale_inv": scales[:, 0, :, 0]}
    held = {"quant_method": "fp8", "weight_block_size": [64, 128], "activation_scheme": "dynamic"}
    _save(folder, model, tensors, held)
    return wide


def _save(folder: Path, model: PreTrainedModel, tensors: dict[str, Tensor], held: dict[str, Any]) -> None:
    model.config.save_pretrained(folder)
    described = json.loads((folder / "config.json").read_text()) | {"quantization_config": held}
    (folder / "config.json").write_text(json.dumps(described | {"architectures": [type(model).__name__]}))
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
