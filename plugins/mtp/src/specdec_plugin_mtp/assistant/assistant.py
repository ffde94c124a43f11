"""An assistant on its target's cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from specdec_runtime.interfaces import CacheReader

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Rows = tuple[torch.Tensor, ...]
"""Keys `[R, Hkv, L, Dk]`, values `[R, Hkv, L, Dv]` and which of them are seen `[R, 1, T, L]`, for each type of layer."""


class Assistant:
    """Predicts the token after the last one from its embedding, a state, and the target's keys and values before it.

    As `transformers` runs it (`SinglePositionMultiTokenCandidateGenerator`), all tokens of a draft are predicted from the
    position of the last committed token, the later ones from the drafted token and the assistant's own state before it.

    Args:
        model: the model, `Gemma4AssistantForCausalLM` or `Gemma4UnifiedAssistantForCausalLM`.
        embed_tokens: the target's embedding, which scales as the target does.
        reader: reads the target's cache.
        layers: by type of layer, the target's layer that is read.
    """

    def __init__(
        self, model: PreTrainedModel, embed_tokens: nn.Module, reader: CacheReader, layers: Mapping[str, int]
    ) -> None:
        self.layers = layers
        self.is_state_first = False
        """Whether the state comes before the embedding in the joined vector, for `specdec check-head`."""
        self._model, self._embed_tokens, self._reader = model, embed_tokens, reader
        self.num_weights = sum(weight.numel() for weight in model.parameters())
        window = model.config.get_text_config().sliding_window
        # Sliding layers see the window's number of rows before the last token, whose own row is not there yet, and one more.
        self.reach = {kind: window + 1 for kind in layers if kind == "sliding_attention"}
        """Most rows that a type of layer sees, where not all."""

    def read(self, first_slots: Sequence[int], num_rows: Sequence[int]) -> Rows:
        """Return what layers see of R requests, each with so many rows in the target's cache."""
        rows = list[torch.Tensor]()
        for kind, layer in self.layers.items():
            starts = [max(0, count - self.reach.get(kind, count)) for count in num_rows]
            parts = [
                self._reader.read(layer, first, start, end)
                for first, start, end in zip(first_slots, starts, num_rows, strict=True)
            ]
            for tensors in zip(*parts, strict=True):
                whole = tensors[0][None] if len(tensors) == 1 else pad_sequence([*tensors], batch_first=True)
                rows.append(whole.transpose(1, 2))
            sizes = torch.tensor([len(keys) for keys, _ in parts], device=rows[-1].device)
            places = torch.arange(rows[-1].shape[2], device=rows[-1].device)
            rows.append((places < sizes[:, None])[:, None, None])
        return tuple(rows)

    def run(
        self, token_ids: torch.Tensor, states: torch.Tensor, positions: torch.Tensor, rows: Rows
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run tokens `[R, T]`, each with the state `[R, T, H]` that predicted it, at positions `[R, T]`.

        Returns:
            states `[R, T, H]`, each of the token that is predicted, and its logits `[R, T, V]`.
        """
        model: Any = self._model
        parts = (self._embed_tokens(token_ids), states)
        joined = torch.cat(parts[::-1] if self.is_state_first else parts, -1)
        found = dict(zip(self.layers, zip(rows[::3], rows[1::3], rows[2::3], strict=True), strict=True))
        output: torch.Tensor = model.model(
            inputs_embeds=model.pre_projection(joined),
            attention_mask={kind: mask for kind, (_, _, mask) in found.items()},
            position_ids=positions,
            shared_kv_states={kind: (keys, values) for kind, (keys, values, _) in found.items()},
            use_cache=False,
            output_hidden_states=token_ids.shape[1] > 1,  # else it runs the last row alone
        ).last_hidden_state
        return model.post_projection(output), self._logits(output)

    def _logits(self, output: torch.Tensor) -> torch.Tensor:
        model: Any = self._model
        if model.masked_embedding is None:
            logits: torch.Tensor = model.lm_head(output)
            return logits
        # One row at a time: ids that it leaves out get a logit below all others of its call.
        rows = [model.masked_embedding(row[None, None], model.lm_head.weight) for row in output.flatten(0, 1)]
        return torch.cat(rows).view(*output.shape[:2], -1)


class AssistantSteps:
    """The steps of one draft of R requests; see `specdec_runtime.interfaces.Steps`.

    Args:
        assistant: the assistant.
        rows: what it sees of them.
        num_tokens: numbers of their committed tokens.
    """

    def __init__(self, assistant: Assistant, rows: Rows, num_tokens: Sequence[int]) -> None:
        self._assistant, self._rows = assistant, rows
        self._positions = torch.tensor(num_tokens, device=rows[0].device)[:, None] - 1

    def begin(self, states: torch.Tensor) -> Rows:
        """Return what the first step reads, of the target's states `[R, H]` that predicted the last tokens."""
        return states[:, None], self._positions, *self._rows

    def step(self, index: int, states: Rows, token_ids: torch.Tensor) -> tuple[Rows, torch.Tensor]:
        """Return what the next step reads, and logits `[R, V]`, after tokens `[R]`."""
        last, positions, *rows = states
        last, logits = self._assistant.run(token_ids[:, None], last, positions, tuple(rows))
        return (last, positions, *rows), logits[:, 0]
