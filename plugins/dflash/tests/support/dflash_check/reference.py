"""What DFlash computes, from the paper (arXiv 2602.06036), in plain torch: dense, in float64, nothing kept between calls."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from head_check.plain import PlainHead, rotated
from torch import Tensor
from torch.nn import functional as F


class Reference(PlainHead):
    """A head over whole texts."""

    def block(self, text: Sequence[int], states: Sequence[Tensor], num_masks: int) -> Tensor:
        """Return the logits `[1 + num_masks, V']` of a block behind a text whose last token is the block's first.

        Args:
            text: the committed tokens.
            states: the target's states `[n, Ht]` that the head reads, at least at all positions but the last.
            num_masks: number of masks behind the last token.
        """
        s, count = self.shape, len(text) - 1
        joined = torch.cat([state[:count].double() for state in states], -1)
        fused = self._norm(F.linear(joined, self._t["fc.weight"]), "hidden_norm.weight")
        x = self._embedding[torch.tensor([text[-1], *[s.mask_id] * num_masks])]
        for index in range(s.num_layers):
            at = f"layers.{index}."
            x = x + self._attention(self._norm(x, at + "input_layernorm.weight"), fused, index)
            y = self._norm(x, at + "post_attention_layernorm.weight")
            gate = F.silu(F.linear(y, self._t[at + "mlp.gate_proj.weight"]))
            up = F.linear(y, self._t[at + "mlp.up_proj.weight"])
            x = x + F.linear(gate * up, self._t[at + "mlp.down_proj.weight"])
        logits = F.linear(self._norm(x, "norm.weight"), self._lm_head) * s.logit_scale
        return logits if s.softcap is None else s.softcap * torch.tanh(logits / s.softcap)

    def guesses(self, text: Sequence[int], states: Sequence[Tensor], count: int) -> Tensor:
        """Return the logits `[count, V']` of the tokens behind a text."""
        if self.shape.predicts_at_anchor:
            return self.block(text, states, count - 1)
        return self.block(text, states, count)[1:]

    def _attention(self, entry: Tensor, fused: Tensor, layer: int) -> Tensor:
        s, at, count = self.shape, f"layers.{layer}.self_attn.", len(fused)

        def projected(name: str, x: Tensor) -> Tensor:
            out = F.linear(x, self._t[f"{at}{name}_proj.weight"], self._t.get(f"{at}{name}_proj.bias"))
            return out.view(len(x), -1, s.head_dim)

        both = torch.cat((fused, entry))
        key, value = self._norm(projected("k", both), at + "k_norm.weight"), projected("v", both)
        query = self._norm(projected("q", both), at + "q_norm.weight")  # the first rows are not used
        query, key = rotated(query, s.theta)[count:], rotated(key, s.theta)
        hidden = torch.zeros(len(entry), len(both), dtype=torch.bool)
        for i in range(len(entry)):
            for j in range(len(both)):
                row, window = count + i, s.windows[layer]
                hidden[i, j] = s.causal[layer] and j > row
                if window is not None:
                    hidden[i, j] |= j < count - window if s.is_from_anchor else j <= row - window
        outputs = []
        for head in range(s.num_heads):
            shared = head // (s.num_heads // s.num_kv_heads)
            scores = query[:, head] @ key[:, shared].T / s.head_dim**0.5
            outputs.append(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value[:, shared])
        return F.linear(
            torch.cat(outputs, -1), self._t[at + "o_proj.weight"], self._t.get(at + "o_proj.bias")
        )
