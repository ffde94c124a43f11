"""The prompts of a call, without padding."""

from __future__ import annotations

import torch

from specdec import ConfigError


def prompt_rows(
    input_ids: torch.Tensor, attention_mask: torch.Tensor | None, position_ids: torch.Tensor | None
) -> list[list[int]]:
    """Return the unmasked token ids of every row.

    A masked token is not attended to and has no position, so removing it does not change the logits.

    Args:
        input_ids: `[B, L]`.
        attention_mask: `[B, L]`, 0 where a token is padding; None for none.
        position_ids: `[B, L]` or `[1, L]`, as `generate` has prepared them.

    Raises:
        ConfigError: for inputs that cannot be expressed by token ids alone.
    """
    if input_ids.ndim != 2 or not input_ids.shape[1]:
        raise ConfigError("generate: there is no prompt: give input_ids of shape [batch, length]")
    is_token = torch.ones_like(input_ids) if attention_mask is None else (attention_mask != 0).long()
    if is_token.shape != input_ids.shape:
        raise ConfigError(
            f"generate: attention_mask has shape {tuple(is_token.shape)} and input_ids {tuple(input_ids.shape)}: give both "
            "the same"
        )
    if not bool(is_token[:, -1].all()):
        raise ConfigError(
            "generate: a row of attention_mask ends with padding: pad on the left, with tokenizer(..., padding_side='left')"
        )
    if position_ids is not None:
        expected = (is_token.cumsum(-1) - 1).masked_fill(is_token == 0, 0)
        if not torch.equal(position_ids.expand_as(expected), expected):
            raise ConfigError(
                "generate: specdec counts positions from the first token of a row: leave position_ids out"
            )
    return [row[keep].tolist() for row, keep in zip(input_ids, is_token.bool(), strict=True)]
