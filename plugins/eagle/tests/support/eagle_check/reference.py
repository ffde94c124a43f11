"""What EAGLE heads compute, from the papers and formats, in plain torch: dense, in float64, nothing kept between calls."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from head_check.plain import PlainHead, rotated
from torch import Tensor
from torch.nn import functional as F

from eagle_check.shape import Shape


class Reference(PlainHead):
    """A head over whole texts."""

    def __init__(self, shape: Shape, tensors: dict[str, Tensor], embedding: Tensor, lm_head: Tensor) -> None:
        super().__init__(shape, tensors, embedding, lm_head)
        ids = torch.arange(shape.num_logits)
        self.target_ids: Tensor = ids + self._t["d2t"] if "d2t" in self._t else ids

    def feature(self, states: Sequence[Tensor]) -> Tensor:
        """Return what the head reads of the target's states: `states[0]` the last, the others the aux ones, each `[n, Ht]`."""
        if not self.shape.is_eagle3:
            return states[0].double()
        chosen = [state.double() for state in (states[1:] if self.shape.num_aux else states[:1])]
        if self.shape.has_fc_norms:
            chosen = [self._norm(x, f"fc_norm.{i}.weight") for i, x in enumerate(chosen)]
        joined = torch.cat(chosen, -1)
        if self.shape.has_norm_before_fc:
            joined = self._norm(joined, "input_norm.weight")
        return F.linear(joined, self._t["fc.weight"]) if "fc.weight" in self._t else joined

    def run(self, ids: Sequence[int], features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits `[n, V']` and carry `[n, F]` of all rows; row i has position i."""
        s, embedded = self.shape, self._embedding[torch.tensor(ids)]
        if s.is_eagle3:
            normed = self._norm(features, "layers.0.hidden_norm.weight")
            entry = torch.cat((self._norm(embedded, "layers.0.input_layernorm.weight"), normed), -1)
            x = normed if s.is_normed_residual else features
        else:
            if s.has_para_norms:
                embedded = self._norm(embedded, "embedding_layernorm.weight")
                features = self._norm(features, "hidden_states_layernorm.weight")
            x = F.linear(torch.cat((embedded, features), -1), self._t["fc.weight"], self._t.get("fc.bias"))
            entry = x
        for index in range(s.num_layers):
            at = f"layers.{index}."
            x = x + self._attention(entry if index == 0 else self._norm(x, at + "input_layernorm.weight"), at)
            y = self._norm(x, at + "post_attention_layernorm.weight")
            gate = F.silu(F.linear(y, self._t[at + "mlp.gate_proj.weight"]))
            x = x + F.linear(
                gate * F.linear(y, self._t[at + "mlp.up_proj.weight"]), self._t[at + "mlp.down_proj.weight"]
            )
        out = self._norm(x, "norm.weight") if s.is_eagle3 else x
        return F.linear(out, self._lm_head) * s.logit_scale, out if s.is_normed_carry else x

    def after(self, text: Sequence[int], states: Sequence[Tensor], path: Sequence[int]) -> Tensor:
        """Return the logits `[V']` after `text` and a drafted `path`, given the target's states at all positions of the text.

        Token j of the text goes with the state at position j - 1, a drafted one with the head's own of the row before it.
        """
        ids, features = list(text[1:]), self.feature(states)[: len(text) - 1]
        logits, carry = self.run(ids, features)
        for token in path:
            ids, features = [*ids, token], torch.cat((features, carry[-1:]))
            logits, carry = self.run(ids, features)
        return logits[-1]

    def at_once(self, text: Sequence[int], states: Sequence[Tensor], count: int) -> Tensor:
        """Return logits `[count, V']` of parallel drafting: those of the last token, then those of mask tokens behind it."""
        assert self.shape.mask_id is not None
        parts = self._t["mask_hidden"].chunk(self.shape.num_states, -1)
        mask = self.feature([parts[0], *parts] if self.shape.num_aux else list(parts))
        ids = [*text[1:], *[self.shape.mask_id] * (count - 1)]
        features = torch.cat((self.feature(states)[: len(text) - 1], mask.expand(count - 1, -1)))
        return self.run(ids, features)[0][-count:]

    def _attention(self, entry: Tensor, at: str) -> Tensor:
        s, count = self.shape, len(entry)

        def projected(name: str) -> Tensor:
            at_it = f"{at}self_attn.{name}_proj."
            x = F.linear(entry, self._t[at_it + "weight"], self._t.get(at_it + "bias"))
            return x.view(count, -1, s.head_dim)

        query, key, value = projected("q"), projected("k"), projected("v")
        if s.family == "qwen3":
            query = self._norm(query, at + "self_attn.q_norm.weight")
            key = self._norm(key, at + "self_attn.k_norm.weight")
        query, key = rotated(query, s.theta), rotated(key, s.theta)
        group = s.num_heads // s.num_kv_heads
        outputs = []
        future = torch.ones(count, count, dtype=torch.bool).triu(1)
        layer = int(at.split(".")[1])
        if s.window is not None and (s.windowed is None or layer in s.windowed):
            future |= torch.ones(count, count, dtype=torch.bool).tril(-s.window)
        for head in range(s.num_heads):
            scores = query[:, head] @ key[:, head // group].T / s.head_dim**0.5
            weights = scores.masked_fill(future, -torch.inf).softmax(-1)
            outputs.append(weights @ value[:, head // group])
        at_it = f"{at}self_attn.o_proj."
        return F.linear(torch.cat(outputs, -1), self._t[at_it + "weight"], self._t.get(at_it + "bias"))
