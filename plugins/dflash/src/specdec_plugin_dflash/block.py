"""Runs blocks of mask tokens on a head's cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specdec.interfaces import sent, sent_together
from specdec_plugin_dflash.head import DFlashHead
from specdec_plugin_dflash.views import View
from specdec_runtime.drafting import RowChunk, run
from specdec_runtime.interfaces import Runner

_MAX_ROWS = 2048
"""Rows of one pass."""


class BlockRunner:
    """Runs the blocks of several requests in one pass.

    Where all layers see the whole text and block, the pass is the runner's, with a mask that lets each row of a block see all
    of it; else layer by layer here, and then nothing of the block is written to the cache.

    Args:
        head: the head.
        runner: the runner of its layers.
    """

    def __init__(self, head: DFlashHead, runner: Runner) -> None:
        self._head, self._runner = head, runner
        views, stage = head.settings.views, head.stage
        self.is_fused = views[0].window is None and len(set(views)) == 1 and not len(head.convolutions)
        """Whether the runner's own pass, in its fastest form, runs the blocks."""
        self.whole = head.settings.max_tokens if stage is not None and stage.reads_whole_block else 0
        """Guesses of every block, if blocks must not be shorter; else 0."""
        if self.is_fused and stage is not None:
            runner.capture_hidden()

    def run(self, row_chunks: Sequence[RowChunk]) -> list[tuple[Tensor, Tensor | None]]:
        """Run blocks, whose rows are the last committed token and masks.

        Returns:
            for each piece logits `[num_logits, V']`, and for heads with a stage the final states `[n, H]` of all rows.
        """
        found: list[tuple[Tensor, Tensor | None]] = []
        for portion in _portions(row_chunks):
            made, states = run(self._runner, portion) if self.is_fused else self._layer_by_layer(portion)
            logits = self._head.finish(made).split([row_chunk.num_logits for row_chunk in portion])
            ends = [len(row_chunk.ids) for row_chunk in portion]
            found += zip(logits, [None] * len(portion) if states is None else states.split(ends), strict=True)
        return found

    def row_chunk(self, place: RowChunk, token_id: int, num_guesses: int) -> RowChunk:
        """Return the block of a request behind its rows.

        Args:
            place: where the rows of the text end.
            token_id: the last committed token.
            num_guesses: number of rows, the last ones, that predict a token.
        """
        size, mask = num_guesses + (0 if self._head.settings.predicts_at_anchor else 1), None
        if self.is_fused and not self._head.settings.views[0].is_causal:
            mask = torch.ones(size, size, dtype=torch.bool)
        ids = np.full(size, self._head.settings.mask_id, np.int64)
        ids[0] = token_id
        return RowChunk(
            ids,
            place.first_slot,
            place.num_cached + len(place.ids),
            num_guesses,
            tree_mask=mask,
            num_drafted=size,
        )

    def _layer_by_layer(self, row_chunks: Sequence[RowChunk]) -> tuple[Tensor, Tensor]:
        head, device = self._head, self._runner.device
        places = [np.arange(len(row_chunk.ids)) for row_chunk in row_chunks]
        positions = [
            place + row_chunk.num_cached for place, row_chunk in zip(places, row_chunks, strict=True)
        ]
        ids, at, in_block = sent_together(
            [np.concatenate(part) for part in ([chunk.ids for chunk in row_chunks], positions, places)],
            device,
        )
        ends = np.cumsum([len(row_chunk.ids) for row_chunk in row_chunks])

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            view, out = head.settings.views[layer], torch.empty_like(query)
            for row_chunk, end in zip(row_chunks, ends.tolist(), strict=True):
                rows = slice(end - len(row_chunk.ids), end)
                out[rows] = self._attend(layer, view, row_chunk, query[rows], key[rows], value[rows])
            return out

        states = head.run(head.embed(ids), at, attend, in_block)
        wanted = np.concatenate(
            [
                np.arange(end - row_chunk.num_logits, end)
                for row_chunk, end in zip(row_chunks, ends.tolist(), strict=True)
            ]
        )
        logits: Tensor = head.model.lm_head(states[sent(torch.from_numpy(wanted), device)])
        return logits, states

    def _attend(
        self, layer: int, view: View, row_chunk: RowChunk, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """Attend from one request's block to its text and to itself."""
        count, size = row_chunk.num_cached, len(row_chunk.ids)
        first = view.first_key(count)
        before = slice(row_chunk.first_slot + first, row_chunk.first_slot + count)
        cache, device = self._runner.cache, query.device
        keys = torch.cat((cache.keys[layer][before], key)).transpose(0, 1)
        values = torch.cat((cache.values[layer][before], value)).transpose(0, 1)
        rows = torch.arange(count, count + size, device=device)[:, None]
        mask = view.visible(rows, torch.arange(first, count + size, device=device)[None], count)
        out = scaled_dot_product_attention(
            query.transpose(0, 1)[None],
            keys[None],
            values[None],
            attn_mask=mask,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return out[0].transpose(0, 1)


def _portions(row_chunks: Sequence[RowChunk]) -> Iterator[list[RowChunk]]:
    """Yield the pieces of each pass."""
    portion: list[RowChunk] = []
    for row_chunk in row_chunks:
        if sum(len(each.ids) for each in (*portion, row_chunk)) > _MAX_ROWS and portion:
            yield portion
            portion = []
        portion.append(row_chunk)
    if portion:
        yield portion
