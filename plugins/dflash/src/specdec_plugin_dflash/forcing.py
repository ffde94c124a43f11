"""Blocks behind many places of a text at once, densely and without a cache: for training, and to compare readings of a head."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specdec_plugin_dflash.head import DFlashHead


def run_blocks(
    head: DFlashHead, tokens: Tensor, aux_states: tuple[Tensor, ...], windows: Tensor, anchors: Tensor
) -> Tensor:
    """Return the final states `[A, S, H]` of whole blocks behind anchors `[A]` of windows `[A]`, ascending.

    Args:
        head: the head.
        tokens: `[B, W]` windows of text.
        aux_states: the target's states that the head reads, each `[B, T, Ht]`.
        windows: index of each anchor's window.
        anchors: position there of each block's first token.
    """
    size = head.settings.block_size
    ids = torch.full((len(anchors), size), head.settings.mask_id, device=tokens.device)
    ids[:, 0] = tokens[windows, anchors]
    places = torch.arange(size, device=tokens.device)
    positions = anchors[:, None] + places
    fused = head.fuse(aux_states)
    texts = torch.arange(fused.shape[1], device=tokens.device)
    context = head.context(fused, texts)
    parts = [windows == window for window in range(len(tokens))]
    seen = [_visible(anchors[part], positions[part], texts, head) for part in parts]

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        outputs, end = [], 0
        for window, masks in enumerate(seen):
            start, end = end, end + masks[layer].shape[0]
            keys, values = (
                torch.cat((before[window].to(own.dtype), own[start:end])).transpose(0, 1)[None]
                for before, own in zip(context[layer], (key, value), strict=True)
            )
            queries = query[start:end].transpose(0, 1)[None]
            out = scaled_dot_product_attention(
                queries,
                keys,
                values,
                attn_mask=masks[layer],
                enable_gqa=queries.shape[1] != keys.shape[1],
            )
            outputs.append(out[0].transpose(0, 1))
        return torch.cat(outputs)

    rows = head.embed(ids).flatten(0, 1)
    states: Tensor = head.run(rows, positions.flatten(), attend, places.repeat(len(anchors))).unflatten(
        0, ids.shape
    )
    return states


def forced_logits(head: DFlashHead, states: Tensor, before: Tensor) -> Iterator[Tensor]:
    """Yield the logits `[A, V']` of each guess of blocks, left to right, given the tokens before it.

    Args:
        head: the head.
        states: `[A, S, H]` final states of whole blocks.
        before: `[A, 1 + K]` the token before each block, and those before each of the K guesses, as the target's ids.
    """
    stage, count = head.stage, head.settings.max_tokens
    own = states[:, -count:]
    if stage is not None:
        features = stage.features(states, count, before[:, 0])
        memory = own.new_zeros(len(own), stage.memory_size)
    for step in range(before.shape[1] - 1):
        logits = head.project(own[:, step])
        if stage is not None:
            logits, memory = stage.correct(step, logits, features[:, step], memory, before[:, 1 + step])
        yield logits


def _visible(anchors: Tensor, positions: Tensor, texts: Tensor, head: DFlashHead) -> list[Tensor]:
    """Return for each layer what the rows of a window's blocks see, `[A * S, T + A * S]`.

    Args:
        anchors: `[A]`.
        positions: `[A, S]`.
        texts: `[T]` positions of the window.
        head: the head.
    """
    rows, first = positions.flatten(), anchors.repeat_interleave(positions.shape[1])[:, None]
    block = torch.arange(len(anchors), device=anchors.device).repeat_interleave(positions.shape[1])
    masks = {}
    for view in set(head.settings.views):
        before = (texts < first) & view.visible(rows[:, None], texts[None], first)
        own = (block[:, None] == block) & view.visible(rows[:, None], rows[None], first)
        masks[view] = torch.cat((before, own), 1)
    return [masks[view] for view in head.settings.views]
