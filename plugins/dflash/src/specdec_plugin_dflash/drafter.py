"""One step of drafting with a block of mask tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from specdec.interfaces import NeedsTokens, ProposeBatch, TargetInfo, sent
from specdec_kernels import can_record
from specdec_plugin_dflash.block import BlockRunner
from specdec_plugin_dflash.config import DFlashConfig
from specdec_plugin_dflash.context import Context
from specdec_plugin_dflash.head import DFlashHead
from specdec_plugin_dflash.loop import BlockLoop
from specdec_runtime.backends import speed_up_linears
from specdec_runtime.drafting import (
    ChainGrowth,
    ChainSteps,
    Chooser,
    DraftVocabulary,
    PartialDraft,
    RequestRows,
    RowChunk,
)
from specdec_runtime.interfaces import Runner


class BlockDrafter:
    """Writes the text's new rows to the cache, and drafts from one pass over each request's block.

    A request's row i is that of the target's state at position i, so it has none of its last token; the rows of its block come
    behind, and are written over. Guesses of a block do not depend on each other: each is drawn from the law of its own mask.
    With a stage each is drawn from what the stage makes of this law and of the guesses before.

    Args:
        config: how tokens are chosen.
        head: the head, on the target's device.
        runner: the runner of its layers.
        vocabulary: the ids that it can draft.
        info: the target.
    """

    def __init__(
        self,
        config: DFlashConfig,
        head: DFlashHead,
        runner: Runner,
        vocabulary: DraftVocabulary,
        info: TargetInfo,
    ) -> None:
        self._head, self._width = head, config.tree_top_k
        self._max_len = config.max_model_len or info.max_model_len
        self.vocabulary = vocabulary
        self.rows = RequestRows(
            runner, vocabulary, info.prefix_block_size, self._max_len, are_states_alone=True
        )
        self.chooser = Chooser(config.draft_sample_method, vocabulary, wants_confidence=config.has_confidence)
        self._growth = ChainGrowth(self.chooser, config.draft_confidence_threshold, info.eos_token_ids)
        self._context = Context(head, runner)
        self._blocks = BlockRunner(head, runner)
        self._loop: BlockLoop | None = None
        self._steps: ChainSteps | None = None
        stage = head.stage
        self._confidences = (
            stage.confidences
            if stage is not None and stage.has_confidence and config.has_confidence
            else None
        )
        if stage is not None:
            speed_up_linears(stage)
        if self.is_fused and can_record(info):  # which also tells the runner which passes there will be
            self._loop = BlockLoop(config, head, runner, self._context, vocabulary, info)
        if stage is not None:
            self._loop = None
        if self._loop is None and self._confidences is None:
            self._steps = ChainSteps(config, vocabulary, head.settings.num_logits, info, runner.pass_memory)
            if stage is None:
                self._steps.prepare_logits(runner.dtype)
            else:
                most = -(-config.num_speculative_tokens // self._width)
                size = head.settings.num_logits + stage.feature_size
                given = torch.empty(most, size, dtype=runner.dtype, device=info.device)
                self._steps.prepare(stage, given, most)

    @property
    def is_fused(self) -> bool:
        """Whether the passes of the block run in a backend's form."""
        return self._blocks.is_fused

    def draft(self, batch: ProposeBatch) -> list[PartialDraft | None]:
        """Return the drafts `[B]` of a step, None for rows without one.

        Raises:
            NeedsTokens: if there is none behind a verdict that the host has not read; see `ProposeBatch.num_unread`.
        """
        if batch.num_unread:
            return self._draft_behind(batch)
        drafts: list[PartialDraft | None] = [None] * batch.batch_size
        places: dict[int, RowChunk] = {}
        num_ahead = max(self._blocks.whole, *batch.max_nodes, 0)
        # Pieces are made when all rows have their places, because making room may move them.
        new_ids = [self.rows.update(batch, row, num_ahead) for row in range(batch.batch_size)]
        for row, ids in enumerate(new_ids):
            if ids is not None:
                places[row] = self.rows.append(batch, row, ids)
                drafts[row] = self._begin(batch, row, self.rows.states[batch.request_ids[row]].num_ids)
        new = {row: row_chunk for row, row_chunk in places.items() if len(row_chunk.ids)}
        wanted = [draft for draft in drafts if draft is not None]
        if wanted and self._loop is not None and self._loop.draft(batch, wanted, new):
            return drafts
        if new:
            self._context.write(batch, new)
        if wanted:
            self._grow(batch, wanted, places)
        return drafts

    def _grow(
        self, batch: ProposeBatch, drafts: Sequence[PartialDraft], places: Mapping[int, RowChunk]
    ) -> None:
        """Fill drafts from a pass over their blocks, and from what the stage makes of it."""
        blocks = self._blocks.run([self._block(batch, draft, places[draft.row]) for draft in drafts])
        stage, given = self._head.stage, [logits for logits, _ in blocks]
        if stage is not None:
            given = []
            for draft, (logits, states) in zip(drafts, blocks, strict=True):
                assert states is not None
                before = sent(torch.tensor(int(batch.token_ids(draft.row)[-2:][0])), logits.device)
                features = stage.features(states.to(self._head.fc.weight.dtype), len(logits), before)
                given.append(torch.cat((logits, features), -1)[: draft.max_depth])
        if self._steps is not None and self._steps.draft(batch, drafts, given):
            return
        if stage is None:
            self._growth.at_once(batch, drafts, given)
        else:
            self._growth.by_steps(
                batch, drafts, stage, pad_sequence(given, batch_first=True), self._confidences
            )

    def _draft_behind(self, batch: ProposeBatch) -> list[PartialDraft | None]:
        """Draft behind a verdict that the host has not read."""
        if self._loop is None:
            raise NeedsTokens
        lengths = map(int.__add__, batch.num_tokens, batch.num_unread)
        drafts = [self._begin(batch, row, length) for row, length in enumerate(lengths)]
        every = [draft or PartialDraft(row, 0, 0) for row, draft in enumerate(drafts)]
        self._loop.draft_behind(batch, every, self.rows)
        return drafts

    def _begin(self, batch: ProposeBatch, row: int, num_ids: int) -> PartialDraft | None:
        """Return the empty draft of a row of a text of so many ids, if it gets one."""
        most = batch.max_nodes[row]
        depth = min(self._head.settings.max_tokens, self._max_len - num_ids, -(-most // self._width))
        return PartialDraft(row, most, depth, self._width) if depth > 0 else None

    def _block(self, batch: ProposeBatch, draft: PartialDraft, place: RowChunk) -> RowChunk:
        last, room = int(batch.token_ids(draft.row)[-1]), self._max_len - batch.num_tokens[draft.row]
        return self._blocks.row_chunk(place, last, max(draft.max_depth, min(self._blocks.whole, room)))
