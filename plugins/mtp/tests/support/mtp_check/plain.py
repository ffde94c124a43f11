"""Multi-token prediction in plain torch, written from the formulas and without a cache: the reference of the tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForCausalLM

from mtp_check.targets import MadeTarget


@dataclass
class Rows:
    """What one layer has been fed of one text."""

    tokens: list[int]
    features: list[Tensor]
    """`[H]` each."""
    positions: list[int]


class PlainMtp:
    """The target and its extra layers. Every call computes all rows anew.

    Args:
        made: the target.
    """

    def __init__(self, made: MadeTarget, *, has_target: bool = True) -> None:
        self.made = made
        self._eps = made.config.rms_norm_eps
        self._target = None
        if has_target:
            self._target = AutoModelForCausalLM.from_pretrained(
                made.folder, dtype=torch.float32, attn_implementation="eager"
            ).eval()
        config = made.blocks[0].self_attn.config
        self._rotary: Any = type(AutoModel.from_config(config).rotary_emb)(config)

    @torch.no_grad()
    def states(self, text: list[int]) -> Tensor:
        """The target's states `[n, H]`: after its final norm, in ERNIE before it."""
        assert self._target is not None
        given: list[Tensor] = []
        handle = self._target.model.norm.register_forward_pre_hook(lambda _, args: given.append(args[0]))
        after = self._target.model(torch.tensor([text])).last_hidden_state[0]
        handle.remove()
        return given[0][0] if self.made.kind == "ernie" else after

    @torch.no_grad()
    def drafted_logits(self, text: list[int], drafted: list[int]) -> list[Tensor]:
        """Return the logits `[V]` that each drafted token is chosen from, for the committed tokens `text`."""
        num_layers = len(self.made.blocks)
        states = self.states(text)
        rows: list[Rows] = []
        last_carry = torch.empty(0)
        logits: list[Tensor] = []
        features = list(states[:-1])
        for layer in range(num_layers):
            # The state at j - 1 - layer pairs with token j; later layers know one state less.
            tokens = text[1 + layer :]
            rows.append(Rows(tokens, features[: len(tokens)], list(range(len(tokens)))))
            outputs = self.run(layer, rows[-1]) if tokens else torch.empty(0)
            if layer == 0:
                last_carry = outputs[-1]
                logits.append(self.logits(layer, outputs[-1]))
            features = list(outputs[:-1])
        for depth, token in enumerate(drafted[:-1], 1):
            layer = depth % num_layers
            given = rows[layer]
            given.tokens.append(token)
            given.features.append(last_carry)
            given.positions.append(len(text) - 2 + depth - layer)
            last_carry = self.run(layer, given)[-1]
            logits.append(self.logits(layer, last_carry))
        return logits

    @torch.no_grad()
    def run(self, layer: int, rows: Rows) -> Tensor:
        """Return a layer's output `[n, H]`, the state of the next step: after the norm, in ERNIE before it."""
        made = self.made
        embedding = made.tensors["model.embed_tokens.weight"][torch.tensor(rows.tokens)]
        e = self.norm(embedding, made.weight("enorm", layer))
        h = self.norm(torch.stack(rows.features), made.weight("hnorm", layer))
        joined = torch.cat((h, e) if made.kind == "mimo" else (e, h), -1)
        x = joined @ made.weight("join", layer).T
        x = self._block(layer, x, torch.tensor(rows.positions))
        return x if made.kind == "ernie" else self.norm(x, made.weight("norm", layer))

    def logits(self, layer: int, state: Tensor) -> Tensor:
        """The output projection of a layer's output."""
        if self.made.kind == "ernie":
            state = self.norm(state, self.made.weight("norm", layer))
        return self.made.tensors["lm_head.weight"] @ state

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Root-mean-square norm; Qwen3-Next scales by one plus the weight."""
        scale = 1.0 + weight if self.made.kind.startswith("qwen3") else weight
        return x / (x.pow(2).mean(-1, keepdim=True) + self._eps).sqrt() * scale

    def _block(self, layer: int, x: Tensor, positions: Tensor) -> Tensor:
        if self.made.kind in ("deepseek_v3", "glm4_moe", "glm4_moe_lite", "qwen3_next"):
            return self._oracle(layer, x, positions)
        name = self.made.name("block", layer)
        x = x + self._attention(
            name + "self_attn.", self.norm(x, self._get(name + "input_layernorm")), positions
        )
        y = self.norm(x, self._get(name + "post_attention_layernorm"))
        gate, up = (y @ self._get(f"{name}mlp.{part}_proj").T for part in ("gate", "up"))
        return x + (gate * gate.sigmoid() * up) @ self._get(name + "mlp.down_proj").T

    def _oracle(self, layer: int, x: Tensor, positions: Tensor) -> Tensor:
        """The family's own layer of `transformers` with a dense causal mask."""
        mask = torch.full((len(x), len(x)), float("-inf")).triu(1)
        out = self.made.blocks[layer](
            x[None],
            attention_mask=mask[None, None],
            position_ids=positions[None],
            position_embeddings=self._rotary(x[None], positions[None]),
        )
        return (out[0] if isinstance(out, tuple) else out)[0]

    def _attention(self, name: str, x: Tensor, positions: Tensor) -> Tensor:
        config, kind = self.made.config, self.made.kind
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        q, k, v = (
            self._linear(name + part, x).unflatten(-1, (-1, size)) for part in ("q_proj", "k_proj", "v_proj")
        )
        gate = None
        if kind == "qwen3_5":
            q, gate = q.unflatten(1, (-1, 2)).unbind(2)
            q, k = self.norm(q, self._get(name + "q_norm")), self.norm(k, self._get(name + "k_norm"))
        q, k = self._rotated(q, positions), self._rotated(k, positions)
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = torch.einsum("ihd,jhd->hij", q, k) * size**-0.5
        scores = scores.masked_fill(torch.ones(len(x), len(x), dtype=torch.bool).triu(1), float("-inf"))
        out = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v)
        if gate is not None:
            out = out * gate.sigmoid()
        return self._linear(name + "o_proj", out.flatten(1))

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turn `x [n, h, D]`: halves against each other; in ERNIE neighbours; in Qwen3.5 a quarter of the numbers."""
        parameters = self.made.config.rope_parameters
        size = int(x.shape[-1] * parameters.get("partial_rotary_factor", 1.0))
        angles = positions[:, None, None] * parameters["rope_theta"] ** (-torch.arange(0, size, 2) / size)
        turned, rest = x[..., :size], x[..., size:]
        if self.made.kind == "ernie":
            a, b = turned[..., 0::2], turned[..., 1::2]
        else:
            a, b = turned.chunk(2, -1)
        pair = (a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin())
        turned = torch.stack(pair, -1).flatten(-2) if self.made.kind == "ernie" else torch.cat(pair, -1)
        return torch.cat((turned, rest), -1)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        bias = self.made.tensors.get(name + ".bias")
        out = x @ self._get(name).T
        return out if bias is None else out + bias

    def _get(self, name: str) -> Tensor:
        return self.made.tensors[name + ".weight"]
