"""Compiled passes of a draft head with the Llama structure."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
from torch import nn

from specdec.runner.agreement import agreement
from specdec.runner.fused.chain import HostChain
from specdec.runner.fused.ends import Ends, host_norm
from specdec.runner.fused.host_layers import head_norms
from specdec.runner.fused.host_stack import HostStack, Norm
from specdec.runner.fused.layer import FusedLayer
from specdec.runner.fused.linear import FastLinear
from specdec.runner.fused.norm import FastNorm
from specdec.runner.fused.pieces import pieces_of, run_pieces, takes_pieces
from specdec.runner.fused.rotary import RotaryTable
from specdec.runner.fused.structure import is_plain_linear, is_rms_norm
from specdec.runner.head import HeadOutput, HeadParts
from specdec.runner.host.product import compact
from specdec.runner.host.threads import is_available, use_threads
from specdec.runner.packed import PackedBatch

if TYPE_CHECKING:
    from specdec.runner.head_runner import HeadRunner

logger = logging.getLogger("specdec")


class FusedHead:
    """Runs one stage of a head in one compiled call per pass.

    Args:
        stack: the prepared parts.
        rotary: rotary factors.
        runner: the runner whose cache is used.
    """

    def __init__(
        self,
        stack: HostStack,
        rotary: RotaryTable,
        runner: HeadRunner,
    ) -> None:
        self._stack, self._rotary, self._runner = stack, rotary, runner
        self._takes_pieces = takes_pieces(stack)
        self.chain = HostChain(stack, rotary, runner)

    def forward(self, batch: PackedBatch, features: torch.Tensor) -> HeadOutput | None:
        """Run a pass; returns None if it has more rows than compiled products are fast for."""
        pieces = pieces_of(self._stack, batch, takes_pieces=self._takes_pieces)
        if pieces is None:
            return None
        rotary = self._rotary.host_tables(int(batch.positions.max()) + 1)
        given = features.float().contiguous().numpy()
        logits, states, _ = run_pieces(self._stack, batch, pieces, self._runner.cache, rotary, (), given)
        return HeadOutput(torch.from_numpy(logits), torch.from_numpy(states))


@torch.inference_mode()
def fuse_head(runner: HeadRunner, stage: int) -> FusedHead | None:
    """Return the compiled form of a stage; None if its structure is unknown or the compiled form does not agree."""
    if runner.device.type != "cpu" or not is_available():
        return None
    parts = runner.head.parts(stage)
    if parts is None or not _is_known(parts):
        _left_out(runner, stage, "its layers are not those of Llama")
        return None
    weight = parts.head.weight
    assert isinstance(weight, torch.Tensor)
    if weight.dtype not in (torch.float32, torch.bfloat16):
        _left_out(runner, stage, f"its weights are {str(weight.dtype).removeprefix('torch.')}")
        return None
    layers = [
        FusedLayer(layer, runner.windows[layer.self_attn.layer_idx])  # type: ignore[union-attr, index]  # checked by structure
        for layer in parts.layers
    ]
    ends = _ends(parts)
    norms = _norms(parts)
    factors = [head_norms(layer) for layer in layers]
    if ends is None or not HostStack.supports(layers, norms, factors, ends):
        _left_out(runner, stage, "its sizes or biases are none that compiled products take")
        return None
    use_threads()
    stack = HostStack(layers, norms, factors, ends)
    embedding = parts.embed_tokens.weight
    assert isinstance(embedding, torch.Tensor)
    rotary = RotaryTable(parts.rotary, embedding.detach())
    fused = FusedHead(stack, rotary, runner)
    return fused if _agrees(fused, runner, stage) else None


def _agrees(fused: FusedHead, runner: HeadRunner, stage: int) -> bool:
    """Compare the compiled form with the stage in wider arithmetic, as `specdec.runner.fused.fuse` does."""
    batch = runner.probe_batch()
    features = runner.probe_features(len(batch.token_ids))
    outputs = (
        fused.forward(batch, features),
        runner.forward_reference(batch, features, stage),
        runner.forward_wide(batch, features, stage),
    )
    form, own, reference = ((out.logits, out.carry) for out in outputs if out is not None)
    found = agreement(form, own, reference, runner.dtype)
    if not found.holds:
        logger.warning(
            "%s: the compiled form of stage %d is not used, its outputs are %s; the head's own forward runs instead, two to "
            "four times slower",
            type(runner.head).__name__, stage, found,
        )  # fmt: skip
    return found.holds


def _left_out(runner: HeadRunner, stage: int, reason: str) -> None:
    logger.warning(
        "%s: there is no compiled form of stage %d (%s); the head's own forward runs instead, two to four times slower",
        type(runner.head).__name__, stage, reason,
    )  # fmt: skip


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
    projection = FastLinear([head])
    stored = projection.compact
    is_tied = head.weight.data_ptr() == embed.weight.data_ptr()
    looked_up = stored if is_tied else compact(embed.weight.detach())
    joined = None if parts.join is None else FastLinear([parts.join])
    if stored is None or looked_up is None or (joined is not None and joined.compact is None):
        return None
    return Ends(
        embedding=looked_up,
        head=stored,
        head_bias=projection.host_bias,
        takes_features=True,
        is_feature_first=parts.is_feature_first,
        is_normed_residual=parts.is_normed_residual,
        is_normed_state=parts.is_normed_carry,
        join=None if joined is None else joined.compact,
        join_bias=None if joined is None else joined.host_bias,
        embed_norm=host_norm(parts.embed_norm),
        feature_norm=host_norm(parts.feature_norm),
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
