"""One step of drafting with a model or head on its runner's cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn

from specdec.interfaces import NeedsTokens, ProposeBatch, TargetInfo
from specdec_runtime.drafting.chain_growth import ChainGrowth
from specdec_runtime.drafting.chains import ChainCall, ChainLoop, example_of
from specdec_runtime.drafting.chooser import Chooser
from specdec_runtime.drafting.drafting_config import DraftingConfig
from specdec_runtime.drafting.head_config import HeadConfig
from specdec_runtime.drafting.own_ids import OwnIds
from specdec_runtime.drafting.partial_draft import PartialDraft
from specdec_runtime.drafting.passes import CachedRows, Int64s, RowChunk, new_rows, new_states, run
from specdec_runtime.drafting.request_rows import RequestRows, RequestState
from specdec_runtime.drafting.target_rows import TargetRows
from specdec_runtime.drafting.tree import GrowingTree
from specdec_runtime.drafting.tree_growth import Nodes, TreeGrowth
from specdec_runtime.drafting.tree_loop import TreeLoop
from specdec_runtime.drafting.vocabulary import DraftVocabulary
from specdec_runtime.interfaces.chain import ChainWork, NewRows
from specdec_runtime.interfaces.forward import ForwardOutput
from specdec_runtime.interfaces.head import DraftHead
from specdec_runtime.interfaces.runner import Runner


@dataclass(frozen=True)
class DraftModule:
    """What a proposer drafts with."""

    module: nn.Module
    """The model, or a `DraftHead`, on the target's device, in evaluation mode."""
    vocabulary: DraftVocabulary
    num_logits: int
    max_len: int
    """Number of the draft's ids after which nothing is drafted."""
    mask_id: int | None = None
    """The mask token, if all tokens of a draft are guessed in one pass."""
    max_depth: int | None = None
    """The deepest node of a draft, if that is limited."""
    tree: HeadConfig | None = None
    """The shape of trees in which several nodes of a depth are continued, if drafts are such."""
    target_runner: Runner | None = None
    """Its runner on the target's cache, if it is a form of the target; None if it gets a cache of its own."""
    margin: float = 0.0
    """See `ChainLoop`."""
    own_ids: OwnIds | None = None
    """Finds what a draft of the request may name beside the ids of the vocabulary, for a form of the target."""


class Drafter:
    """Runs new tokens and drafts from their last rows, with as few calls of the runner as the way of drafting allows.

    Args:
        config: how tokens are chosen.
        module: the model or head.
        runner: its runner.
        info: the target.
        num_aux: of how many layers of the target a head reads the inputs.
    """

    def __init__(
        self, config: DraftingConfig, module: DraftModule, runner: Runner, info: TargetInfo, num_aux: int = 0
    ) -> None:
        self._config, self._module, self._runner = config, module, runner
        self._head = module.module if isinstance(module.module, DraftHead) else None
        self.vocabulary = vocabulary = module.vocabulary
        method, ends = config.draft_sample_method, info.eos_token_ids
        threshold, tree = config.draft_confidence_threshold, module.tree
        self.rows: RequestRows | TargetRows
        if module.target_runner is None:
            self.rows = RequestRows(runner, vocabulary, info.prefix_block_size, module.max_len)
        else:
            self.rows = TargetRows(module.max_len, module.own_ids)
        self.chooser = Chooser(method, vocabulary, wants_confidence=config.has_confidence or tree is not None)
        self._chains = ChainGrowth(self.chooser, threshold, ends)
        self._trees = None if tree is None else TreeGrowth(tree, self.chooser, vocabulary, ends)
        self._tree_loop: TreeLoop | None = None
        if tree is not None and self._trees is not None:
            self._tree_loop = TreeLoop(tree, vocabulary, module.num_logits, self._trees.depth)
        self._loop = ChainLoop(
            method, vocabulary, module.num_logits, threshold, ends, module.margin, (module.mask_id, False),
            1 if tree is not None else config.tree_top_k,
        )  # fmt: skip
        self._is_chain = self.rows.num_stages == 1 and tree is None and self._loop.is_possible
        if module.mask_id is not None or config.is_tree:  # which only recorded loops do
            has_feature = module.mask_id is None or self._head is None or self._head.mask_feature is not None
            self._is_chain = self._is_chain and has_feature and runner.device.type != "cpu"
        runner.expected = self._expected(info, num_aux)
        self._most_new = 0 if runner.expected is None else runner.expected[0].counts[0]

    def _expected(self, info: TargetInfo, num_aux: int) -> tuple[NewRows, ChainWork] | None:
        """Return what the runner's draft loop will be asked for; None if it makes no drafts."""
        num_steps, rules = self._config.num_speculative_tokens, self._loop.rules
        if self._tree_loop is not None and self._trees is not None:
            num_steps, rules = min(num_steps, self._trees.depth or num_steps), self._tree_loop.rules
        if (
            not (self._is_chain if self._tree_loop is None else self._tree_loop.is_possible)
            or not rules.num_ids
        ):
            return None
        num_steps = min(num_steps, self._module.max_depth or num_steps)
        num_steps = -(-num_steps // rules.siblings)
        num_new = 2 if rules.mask_id is None and rules.siblings == 1 else num_steps + 1
        states: tuple[torch.Tensor, ...] = ()
        if isinstance(self.rows, TargetRows):
            num_new = 1
        elif self._head is not None:
            num_new = num_steps + 1
            none = torch.empty(0, info.hidden_size, dtype=info.dtype, device=info.device)
            states = (none,) * (1 + num_aux)
        rows = NewRows(np.zeros(num_new, np.int64), [num_new], states)
        return rows, example_of(num_steps, rules)

    def draft(self, batch: ProposeBatch) -> list[PartialDraft | None]:
        """Return the drafts `[B]` of a step, None for rows without one.

        Raises:
            NeedsTokens: if there is none behind a verdict that the host has not read; see `ProposeBatch.num_unread`.
        """
        if batch.num_unread:
            return self._draft_behind(batch)
        # All rows have room for the deepest draft, because compiled loops run them to that depth.
        num_ahead = max(batch.max_nodes, default=0)
        num_ahead = num_ahead if self._trees is None else self._trees.most_rows(num_ahead)
        drafts: list[PartialDraft | None] = [None] * batch.batch_size
        made: dict[int, RowChunk] = {}
        # Pieces are made when all rows have their places, because making room may move them.
        new_ids = [self.rows.update(batch, row, num_ahead) for row in range(batch.batch_size)]
        for row, ids in enumerate(new_ids):
            if ids is not None:
                drafts[row], made[row] = self._begin(batch, row, ids)
        wanted = [draft for draft in drafts if draft is not None]
        if not self._draft_after(batch, wanted, _not_empty(made)):
            if self._module.mask_id is not None:
                self._add_masks(wanted, made)
            row_chunks, logits = _not_empty(made), None
            if row_chunks:
                self._add_features(batch, row_chunks)
                logits = self._run_new(
                    [(self._state(batch, row), row_chunk) for row, row_chunk in row_chunks.items()]
                )
            is_whole = list(row_chunks) == [draft.row for draft in wanted]
            for draft in self._grow(batch, wanted, logits if is_whole else None) if wanted else ():
                drafts[draft.row] = draft
        return drafts

    def _draft_behind(self, batch: ProposeBatch) -> list[PartialDraft | None]:
        """Draft behind a verdict that the host has not read, by the recorded loop that takes its tokens there."""
        most = max(batch.max_nodes)
        assert isinstance(self.rows, RequestRows), "a form of the target is asked in time"
        places = self.rows.places_behind(batch, most if self._trees is None else self._trees.most_rows(most))
        drafts = [
            self._empty(row, nodes, self._state(batch, row).num_ids + count + unread)
            for row, (nodes, count, unread) in enumerate(
                zip(batch.max_nodes, batch.counts, batch.num_unread, strict=True)
            )
        ]
        wanted = [draft or PartialDraft(row, 0, 0) for row, draft in enumerate(drafts)]
        if not self._can_loop(batch, wanted):
            raise NeedsTokens
        none = NewRows(np.zeros(0, np.int64), [0] * len(wanted))
        self._loop_over(batch, wanted, partial(self._runner.draft_after, none), places)
        self.rows.go_ahead(batch)
        return [*drafts]

    def _empty(self, row: int, most: int, num_ids: int) -> PartialDraft | None:
        """Return the empty draft of a row of a text of so many ids; None if nothing may be drafted for it."""
        width = self._config.tree_top_k if self._trees is None else 1
        deepest = min(self._module.max_depth or most, self._module.max_len - num_ids, -(-most // width))
        return PartialDraft(row, most, deepest, width) if deepest > 0 else None

    def _state(self, batch: ProposeBatch, row: int) -> RequestState:
        return self.rows.states[batch.request_ids[row]]

    def _begin(self, batch: ProposeBatch, row: int, ids: Int64s) -> tuple[PartialDraft | None, RowChunk]:
        """Return a row's empty draft, if it gets one, and the piece of its new tokens `ids`."""
        row_chunk, state, draft = self.rows.append(batch, row, ids), self._state(batch, row), None
        num_new = len(row_chunk.ids)
        if num_new or state.logits is not None:
            draft = self._empty(row, batch.max_nodes[row], state.num_ids)
        if num_new and (draft is not None or self._head is not None):
            row_chunk.num_logits = 1
        return draft, row_chunk

    def _add_masks(self, drafts: list[PartialDraft], row_chunks: dict[int, RowChunk]) -> None:
        """Put mask tokens behind the new tokens of drafts, which one pass guesses."""
        for draft in drafts:
            num_masks, row_chunk = draft.max_depth - 1, row_chunks[draft.row]
            row_chunk.ids = np.concatenate((row_chunk.ids, np.full(num_masks, self._module.mask_id)))
            row_chunk.num_logits += num_masks
            row_chunk.num_drafted = num_masks

    def _new_states(self, batch: ProposeBatch) -> tuple[torch.Tensor, ...]:
        """Return the target's states `[T, H]` of every kind that a head takes; () for a model."""
        if self._head is None:
            return ()
        assert batch.hidden_states is not None, "heads need states"
        return batch.hidden_states, *batch.aux_hidden_states

    def _add_features(self, batch: ProposeBatch, row_chunks: dict[int, RowChunk]) -> None:
        """Give a head's pieces their features: of new tokens from the target's states, and the head's own of mask tokens."""
        if self._head is None:
            return
        first, *aux = new_states(batch, row_chunks, self._new_states(batch))
        features = self._head.combine(first, tuple(aux))
        counts = [len(row_chunk.ids) - row_chunk.num_drafted for row_chunk in row_chunks.values()]
        for row_chunk, part in zip(row_chunks.values(), features.split(counts), strict=True):
            row_chunk.features = part
            if row_chunk.num_drafted and self._head.mask_feature is not None:
                row_chunk.features = torch.cat(
                    (part, self._head.mask_feature.expand(row_chunk.num_drafted, -1))
                )

    def _draft_after(
        self, batch: ProposeBatch, drafts: list[PartialDraft], row_chunks: dict[int, RowChunk]
    ) -> bool:
        """Run the pieces and draft in one call; returns False if that is not possible.

        A recorded loop takes pieces of rows without a draft as well.
        """
        rows = [draft.row for draft in drafts]
        is_recorded = self._runner.device.type != "cpu"
        if not drafts or not (row_chunks.keys() >= set(rows) if is_recorded else list(row_chunks) == rows):
            return False
        if len(drafts) < len(row_chunks):
            by_row = {row: PartialDraft(row, 0, 0) for row in row_chunks} | dict(
                zip(rows, drafts, strict=True)
            )
            drafts = list(by_row.values())
        if not self._can_loop(batch, drafts):
            return False
        chain, num_new = self._runner.chain, sum(len(row_chunk.ids) for row_chunk in row_chunks.values())
        if is_recorded and self._most_new:
            self._run_beginnings(batch, row_chunks)
        elif chain is None or num_new > chain.max_new_rows:
            return False
        given, new = new_rows(batch, row_chunks, self._new_states(batch)), row_chunks.values()
        places = [row_chunk.first_slot for row_chunk in new], [row_chunk.num_cached for row_chunk in new]
        self._loop_over(batch, drafts, partial(self._runner.draft_after, given), places)
        return True

    def _run_beginnings(self, batch: ProposeBatch, row_chunks: dict[int, RowChunk]) -> None:
        """Run what a recorded loop has no room for, such as prompts, and leave it the last new token of these rows."""
        long = {
            row: row_chunk for row, row_chunk in row_chunks.items() if len(row_chunk.ids) > self._most_new
        }
        if not long:
            return
        self._add_features(batch, long)
        run(
            self._runner,
            [row_chunk.part(0, len(row_chunk.ids) - 1, is_last=False) for row_chunk in long.values()],
        )
        for row, row_chunk in long.items():
            row_chunks[row] = row_chunk.part(len(row_chunk.ids) - 1, len(row_chunk.ids), is_last=True)

    def _can_loop(self, batch: ProposeBatch, drafts: list[PartialDraft]) -> bool:
        """Return whether the runner's draft loop makes these drafts."""
        chain, is_recorded = self._runner.chain, self._runner.device.type != "cpu"
        if chain is None:
            return False
        if self._tree_loop is not None:
            return self._tree_loop.can_draft(batch, drafts, chain.max_tree_nodes)
        return self._is_chain and self._loop.can_draft(batch, drafts, chain.max_rows, is_recorded=is_recorded)

    def _loop_over(
        self, batch: ProposeBatch, drafts: list[PartialDraft], call: ChainCall, places: CachedRows
    ) -> None:
        """Make drafts by the runner's draft loop."""
        more: Sequence[Int64s] = ()
        if isinstance(self.rows, TargetRows):
            more = self.rows.more_ids(batch, [draft.row for draft in drafts])
        if self._tree_loop is not None:
            self._tree_loop.draft(batch, drafts, call, places)
            return
        fed, chains = self._loop.draft(batch, drafts, call, places, more)
        if self._head is None:  # it can run its last token again
            for draft, token_ids in zip(drafts, fed, strict=True):
                self.rows.keep_drafted(self._state(batch, draft.row), token_ids)
        elif chains.logits.shape[0]:  # a head's rows of drafted tokens are not the committed ones
            for place, draft in enumerate(drafts):
                state = self._state(batch, draft.row)
                state.logits, state.carries[0] = chains.logits[place : place + 1], chains.states[place]

    def _run_new(self, running: list[tuple[RequestState, RowChunk]]) -> torch.Tensor | None:
        """Run new tokens through every stage, each with the carries of the stage before.

        Returns:
            `[R, V']` the logits that now are those of their states; None if they are only some of these.
        """
        known: torch.Tensor | None = None
        for stage in range(self.rows.num_stages):
            logits, carries = run(self._runner, [row_chunk for _, row_chunk in running], stage)
            if stage == 0:
                counts = [row_chunk.num_logits for _, row_chunk in running]
                known = logits if counts == [1] * len(counts) else None
                parts = logits.split(counts)
                for (state, row_chunk), part in zip(running, parts, strict=True):
                    if self.rows.num_rows(state) > row_chunk.num_cached:
                        state.logits = part if len(part) else None
                    elif state.logits is not None:  # only mask tokens ran
                        state.logits = torch.cat((state.logits[:1], part))
            if carries is None:
                break
            parts = carries.split([len(row_chunk.ids) for _, row_chunk in running])
            following = [
                (state, self.rows.keep(state, stage, row_chunk, part))
                for (state, row_chunk), part in zip(running, parts, strict=True)
            ]
            running = [(state, row_chunk) for state, row_chunk in following if row_chunk is not None]
            if not running:
                break
        return known

    def _grow(
        self, batch: ProposeBatch, drafts: list[PartialDraft], logits: torch.Tensor | None
    ) -> Sequence[PartialDraft]:
        """Draft for rows whose new tokens have been run; `logits [R, V']` are those of their states, if they are together."""
        states = [self._state(batch, draft.row) for draft in drafts]
        known = [state.logits for state in states if state.logits is not None]
        if self._module.mask_id is not None:
            self._chains.at_once(batch, drafts, known)
            return drafts
        logits = torch.cat(known) if logits is None else logits
        carries = None if self._head is None else torch.stack([state.carries[0] for state in states])
        if self._can_loop(batch, drafts):
            call = partial(self._runner.draft_chain, ForwardOutput(logits, carries))
            slots, num_rows = zip(*(self.rows.place(batch.request_ids[d.row]) for d in drafts), strict=True)
            self._loop_over(batch, drafts, call, (slots, num_rows))
            return drafts
        if self._trees is not None and carries is not None:
            trees = [GrowingTree(draft.row, draft.max_nodes, draft.max_depth) for draft in drafts]
            return self._trees.grow(batch, trees, logits, carries, partial(self._run_nodes, batch))

        def run_next(active: list[PartialDraft], places: list[int], token_ids: list[int]) -> torch.Tensor:
            nonlocal carries
            row_chunks = []
            for draft, place, token_id in zip(active, places, token_ids, strict=True):
                row_chunk = self.rows.chunk_ahead(batch.request_ids[draft.row], draft.path, token_id)
                row_chunk.features = None if carries is None else carries[place : place + 1]
                row_chunks.append(row_chunk)
            # Depths cycle through the stages.
            logits, carries = run(self._runner, row_chunks, len(active[0].path) % self.rows.num_stages)
            return logits

        self._chains.in_turn(batch, drafts, logits, run_next)
        return drafts

    def _run_nodes(
        self, batch: ProposeBatch, frontier: Nodes, features: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run nodes of trees with the carries of their parents; returns their logits and carries."""
        parts = features.split([len(nodes) for _, nodes in frontier])
        logits, carries = run(
            self._runner,
            [
                tree.run(nodes, part, *self.rows.place(batch.request_ids[tree.row]))
                for (tree, nodes), part in zip(frontier, parts, strict=True)
            ],
        )
        assert carries is not None, "passes of heads return the carry"
        return logits, carries


def _not_empty(row_chunks: dict[int, RowChunk]) -> dict[int, RowChunk]:
    """Return the pieces that have rows."""
    return {row: row_chunk for row, row_chunk in row_chunks.items() if len(row_chunk.ids)}
