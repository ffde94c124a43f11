"""Drafts blocks of mask tokens by a runner's draft loop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from specdec.interfaces import NeedsTokens, ProposeBatch, TargetInfo
from specdec_plugin_dflash.config import DFlashConfig
from specdec_plugin_dflash.context import Context
from specdec_plugin_dflash.head import DFlashHead
from specdec_runtime.drafting import (
    ChainLoop,
    DraftVocabulary,
    PartialDraft,
    RequestRows,
    RowChunk,
    example_of,
    new_rows,
)
from specdec_runtime.interfaces import NewRows, Runner


class BlockLoop:
    """Writes new rows of texts, runs blocks and chooses tokens in one call, which a device records.

    Args:
        config: how tokens are chosen.
        head: the head, whose layers all see alike.
        runner: the runner of its layers.
        context: gives the rows of texts.
        vocabulary: the ids that it can draft.
        info: the target.
    """

    def __init__(
        self,
        config: DFlashConfig,
        head: DFlashHead,
        runner: Runner,
        context: Context,
        vocabulary: DraftVocabulary,
        info: TargetInfo,
    ) -> None:
        settings = head.settings
        self._runner, self._context = runner, context
        self._loop = ChainLoop(
            config.draft_sample_method,
            vocabulary,
            settings.num_logits,
            config.draft_confidence_threshold,
            info.eos_token_ids,
            masks=(settings.mask_id, not settings.predicts_at_anchor),
            siblings=config.tree_top_k,
        )
        runner.context = context
        num_steps = min(-(-config.num_speculative_tokens // config.tree_top_k), settings.max_tokens)
        self._most_new = num_steps + 1
        if self._loop.is_possible:
            none = torch.empty(0, settings.target_hidden_size, dtype=info.dtype, device=info.device)
            rows = NewRows(
                np.zeros(num_steps + 1, np.int64), [num_steps + 1], (none,) * len(settings.aux_layers)
            )
            runner.expected = rows, example_of(num_steps, self._loop.rules)

    def draft(
        self, batch: ProposeBatch, drafts: Sequence[PartialDraft], row_chunks: dict[int, RowChunk]
    ) -> bool:
        """Write new rows and fill empty drafts; returns False, with nothing done, if the loop cannot.

        Args:
            batch: the step's batch.
            drafts: the drafts.
            row_chunks: new rows by row of the batch, of each at least one.
        """
        by_row = {draft.row: draft for draft in drafts}
        every = [by_row.get(row) or PartialDraft(row, 0, 0) for row in row_chunks]
        if not row_chunks.keys() >= by_row.keys() or not self._can_draft(batch, every):
            return False
        long = {
            row: row_chunk for row, row_chunk in row_chunks.items() if len(row_chunk.ids) > self._most_new
        }
        if long:
            self._context.write(batch, long)
            row_chunks = row_chunks | {
                row: p.part(len(p.ids) - 1, len(p.ids), is_last=True) for row, p in long.items()
            }
        new = row_chunks.values()
        places = [row_chunk.first_slot for row_chunk in new], [row_chunk.num_cached for row_chunk in new]
        call = partial(self._runner.draft_after, new_rows(batch, row_chunks, batch.aux_hidden_states))
        self._loop.draft(batch, every, call, places)
        return True

    def draft_behind(self, batch: ProposeBatch, drafts: Sequence[PartialDraft], rows: RequestRows) -> None:
        """Fill an empty draft of each row behind a verdict that the host has not read.

        Args:
            batch: the step's batch.
            drafts: the drafts.
            rows: the rows of all requests.

        Raises:
            NeedsTokens: if the loop cannot.
        """
        places = rows.places_behind(batch, max(batch.max_nodes) + 1)
        if not self._can_draft(batch, drafts):
            raise NeedsTokens
        none = NewRows(np.zeros(0, np.int64), [0] * batch.batch_size)
        self._loop.draft(batch, drafts, partial(self._runner.draft_after, none), places)
        rows.go_ahead(batch)

    def _can_draft(self, batch: ProposeBatch, drafts: Sequence[PartialDraft]) -> bool:
        chain = self._runner.chain
        return chain is not None and self._loop.can_draft(batch, drafts, chain.max_rows, is_recorded=True)
