"""The parts of a draft head's stage, prepared for compiled passes."""

from __future__ import annotations

from typing import cast

from torch import nn

from specdec.interfaces import Declined, DraftHead, HeadParts, Runner
from specdec_kernels.cpu.ends import Ends, compiled_norm
from specdec_kernels.cpu.linear import CompiledLinear, compiled_linear
from specdec_kernels.cpu.loops.product import compact
from specdec_kernels.cpu.stack import CompiledStack, Norm, head_norms
from specdec_kernels.layers.layer import FusedLayer
from specdec_kernels.layers.norm import FastNorm
from specdec_kernels.layers.rotary import RotaryTable
from specdec_kernels.layers.structure import is_plain_linear, is_rms_norm


def head_stack(runner: Runner, stage: int) -> tuple[CompiledStack, RotaryTable] | Declined:
    """Return a stage prepared for compiled passes, and its rotary factors."""
    parts = cast(DraftHead, runner.module).parts(stage)
    if parts is None or not _is_known(parts):
        return Declined("its layers are not those of Llama")
    layers = [
        FusedLayer(layer, runner.windows[layer.self_attn.layer_idx], make_linear=compiled_linear)  # type: ignore[union-attr, index]  # checked by structure
        for layer in parts.layers
    ]
    ends, norms, factors = _ends(parts), _norms(parts), [head_norms(layer) for layer in layers]
    if ends is None or not CompiledStack.supports(layers, norms, factors, ends):
        return Declined("its sizes, biases or dtypes are none that compiled products take")
    embedding = cast(nn.Embedding, parts.embed_tokens).weight
    return CompiledStack(layers, norms, factors, ends), RotaryTable(parts.rotary, embedding.detach())


def _is_known(parts: HeadParts) -> bool:
    norms = [parts.norm, parts.first_norm, parts.embed_norm, parts.feature_norm]
    for layer in parts.layers:
        children = dict(layer.named_children())
        if not {"self_attn", "mlp", "post_attention_layernorm"} <= set(children):
            return False
        attention, mlp = dict(children["self_attn"].named_children()), dict(children["mlp"].named_children())
        if set(mlp) != {"gate_proj", "up_proj", "down_proj", "act_fn"}:
            return False
        if set(attention) not in (
            {"q_proj", "k_proj", "v_proj", "o_proj"},
            {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"},
        ):
            return False
        linears = [m for name, m in (*attention.items(), *mlp.items()) if name.endswith("proj")]
        norms += [m for name, m in attention.items() if name.endswith("norm")]
        norms.append(children["post_attention_layernorm"])
        if not all(is_plain_linear(linear) for linear in linears):
            return False
    return (
        type(parts.embed_tokens) is nn.Embedding
        and is_plain_linear(parts.head)
        and (parts.join is None or is_plain_linear(parts.join))
        and all(norm is None or is_rms_norm(norm) for norm in norms)
    )


def _ends(parts: HeadParts) -> Ends | None:
    head, embed = parts.head, parts.embed_tokens
    assert isinstance(head, nn.Linear) and isinstance(embed, nn.Embedding)
    projection = CompiledLinear([head])
    stored = projection.compact
    is_tied = head.weight.data_ptr() == embed.weight.data_ptr()
    looked_up = stored if is_tied else compact(embed.weight.detach())
    joined = None if parts.join is None else CompiledLinear([parts.join])
    if stored is None or looked_up is None or (joined is not None and joined.compact is None):
        return None
    return Ends(
        embedding=looked_up,
        head=stored,
        head_bias=projection.bias_array,
        takes_features=True,
        is_feature_first=parts.is_feature_first,
        is_normed_residual=parts.is_normed_residual,
        is_normed_state=parts.is_normed_carry,
        join=None if joined is None else joined.compact,
        join_bias=None if joined is None else joined.bias_array,
        embed_norm=compiled_norm(parts.embed_norm),
        feature_norm=compiled_norm(parts.feature_norm),
    )


def _norms(parts: HeadParts) -> list[Norm | None]:
    """Return each layer's two norms, then the final norm; None for a norm that does not exist."""
    modules: list[nn.Module | None] = []
    for index, layer in enumerate(parts.layers):
        modules.append(parts.first_norm if index == 0 else layer.input_layernorm)  # type: ignore[arg-type]  # Llama structure
        modules.append(layer.post_attention_layernorm)  # type: ignore[arg-type]  # ditto
    modules.append(parts.norm)
    norms: list[Norm | None] = []
    for module in modules:
        if module is None:
            norms.append(None)
        else:
            norm = FastNorm(module)
            norms.append((norm.weight.float().numpy(), norm.epsilon))
    return norms
