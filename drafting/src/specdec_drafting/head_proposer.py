"""The base class of proposers that run a head on the target's hidden states."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch

from specdec import ConfigError
from specdec.interfaces import (
    Capability,
    ChainWork,
    Draft,
    DraftHead,
    FinishReason,
    ForwardOutput,
    HostIds,
    NewRows,
    NoiseKeys,
    PackedBatch,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetHandle,
    TargetInfo,
)
from specdec.loading import check_rope
from specdec.runner import in_inference_mode
from specdec_drafting.assemble import draft_of
from specdec_drafting.chains import ChainLoop
from specdec_drafting.chooser import Chooser
from specdec_drafting.head_config import HeadConfig
from specdec_drafting.head_context import HeadContext
from specdec_drafting.head_rows import HeadRows
from specdec_drafting.news import News
from specdec_drafting.passes import Piece, run
from specdec_drafting.sketch import Sketch
from specdec_drafting.tree import GrowingTree
from specdec_drafting.tree_growth import TreeGrowth
from specdec_drafting.vocabulary import equal_vocabulary, reduced_vocabulary


class HeadProposer(Proposer):
    """Runs a head on core's cache: processes new tokens with the target's states, then drafts a chain or tree.

    A subclass defines how its head is loaded. Drafted tokens use the head's own states in place of the target's. Once
    tokens are committed, their rows are recomputed with the target's states.
    """

    Config: ClassVar[type[ProposerConfig]] = HeadConfig
    capabilities = frozenset(
        {
            Capability.HIDDEN_STATES,
            Capability.OWN_KV,
            Capability.DRAFT_PROBS,
            Capability.TREE,
        }
    )

    def __init__(self, config: HeadConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._config = config
        self._method = config.draft_sample_method
        given = {
            Capability.DRAFT_PROBS: self._method == "probabilistic",
            Capability.TREE: config.is_tree,
        }
        absent = {capability for capability, is_given in given.items() if not is_given}
        self.capabilities = type(self).capabilities - absent

    @abstractmethod
    def load_head(self, target: TargetHandle) -> DraftHead:
        """Return the head, on the target's device, in evaluation mode.

        Raises:
            ModelError: if it cannot be loaded.
            ConfigError: if it does not fit the target or the configuration.
        """

    def load(self, target: TargetHandle) -> None:
        """Load the head and make its runner."""
        config, info = self._config, target.info
        self._max_len = config.max_model_len or info.max_model_len
        self._head = self.load_head(target)
        check_rope(self._head.config, self._max_len, config.model or self.name)
        if config.tree_choices is not None and self._head.num_stages > 1:
            raise ConfigError(
                f"speculative_config: tree_choices needs a head of one stage, this one has {self._head.num_stages}: take "
                "tree_top_k"
            )
        self._runner = target.make_runner(self._head)
        self._rows = HeadRows(self._runner, info, self._max_len)
        ids = self._head.target_ids
        self._vocabulary = (
            equal_vocabulary(info.vocab_size, self._head.num_logits, info.device)
            if ids is None
            else reduced_vocabulary(ids.cpu().numpy(), info.vocab_size, info.device)
        )
        self._is_parallel = self._head.mask_id is not None and config.parallel_drafting
        self._is_chain = self._head.num_stages == 1 and not self._is_parallel and not config.is_tree
        threshold = config.draft_confidence_threshold
        self._chooser = Chooser(
            self._method, self._vocabulary, wants_confidence=threshold > 0 or config.is_tree
        )
        self._loop = ChainLoop(self._method, self._vocabulary, self._head.num_logits, threshold)
        self._growth = TreeGrowth(config, self._chooser, self._vocabulary, info.eos_token_ids)
        if self._runner.max_chain_rows:
            # Warm-up: compiles the loop, so that the first step is as fast as the others.
            zero = np.zeros(1, np.int64)
            output = ForwardOutput(
                torch.zeros(1, self._head.num_logits), torch.zeros(1, self._head.feature_size)
            )
            work = ChainWork([0], [0], 2, [0.0], NoiseKeys(zero, zero, zero), self._loop.rules)
            self._runner.draft_chain(output, work)

    @in_inference_mode
    def propose(self, batch: ProposeBatch) -> Draft:
        """Process the new tokens with their states, and draft for every row that needs a draft."""
        news = self._news(batch)
        grown = self._draft_after(batch, news)
        if grown is None:
            drafting = self._take_in(batch, news)
            grown = self._grow(batch, drafting) if drafting else []
        for row in news.rows:
            request_id = batch.request_ids[row]
            taken = self._rows.contexts[request_id].num_tokens
            self._rows.pool.publish(request_id, batch.token_ids(row)[:taken])
        sketches: list[Sketch | None] = [None] * batch.batch_size
        for sketch in grown:
            sketches[sketch.row] = sketch
        return draft_of(
            sketches,
            self.target_info.device,
            is_tree=self._config.is_tree,
            has_confidence=self._config.draft_confidence_threshold > 0 or self._config.is_dynamic,
            vocab_map=self._vocabulary.target_ids,
        )

    def resume(self, request_id: str, token_ids: HostIds) -> int:
        """Reuse the rows of a cached prefix."""
        return self._rows.resume(request_id, token_ids)

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop the state of these requests."""
        for request_id in request_ids:
            self._rows.drop(request_id)

    def _news(self, batch: ProposeBatch) -> News:
        """Update the contexts; returns the tokens that each row has to process."""
        assert batch.hidden_states is not None, "heads need states"
        features = self._combine(batch.hidden_states, batch.aux_hidden_states)
        ids = batch.new_token_ids.astype(np.int64)
        rows, spans = [], []
        offset = 0
        num_ahead = self._growth.most_rows(max(batch.max_nodes, default=0))
        for row, count in enumerate(batch.counts):
            context = self._rows.update(batch, row, num_ahead)
            # The first token of a request has no state, so it is never run.
            first = 1 if context.num_tokens == 0 and count else 0
            context.num_tokens += count
            if not context.is_lost and count > first:
                rows.append(row)
                spans.append(slice(offset + first, offset + count))
            offset += count
        return News(ids, features, rows, spans)

    def _draft_after(self, batch: ProposeBatch, news: News) -> list[Sketch] | None:
        """Process new tokens and draft chains in one call; None if a row has no new tokens, or if they do not fit."""
        most = self._runner.max_new_rows
        if not 0 < len(news.ids) <= most or not news.is_all_of(batch) or not self._is_chain:
            return None
        sketches = [sketch for row in news.rows if (sketch := self._sketch(batch, row)) is not None]
        if len(sketches) < batch.batch_size or not self._loop.can_draft(batch, sketches, most):
            return None
        contexts = [self._rows.contexts[request_id] for request_id in batch.request_ids]
        new_rows = NewRows(news.ids, batch.counts, news.features.float().contiguous().numpy())
        call = partial(self._runner.draft_after, new_rows)
        places, ends = self._places(batch, sketches), self.target_info.eos_token_ids
        chains = self._loop.draft(batch, sketches, call, places, ends).chains
        states, logits = torch.from_numpy(chains.states), torch.from_numpy(chains.logits)
        for row, context in enumerate(contexts):
            context.num_rows[0] += batch.counts[row]
            context.last_carry[0], context.last_logits = states[row], logits[row]
        return sketches

    def _take_in(self, batch: ProposeBatch, news: News) -> list[Sketch]:
        """Run all new tokens through every stage; returns an empty sketch for each row that can be drafted for."""
        num_stages = self._head.num_stages
        rows = list(news.rows)
        carries = [news.features[span] for span in news.spans]
        tokens = [news.ids[span] for span in news.spans]
        befores: list[torch.Tensor | None] = [None] * len(rows)
        for stage in range(num_stages):
            pieces, kept = [], []
            for index, row in enumerate(rows):
                context = self._rows.contexts[batch.request_ids[row]]
                if stage:
                    # Each token but the first uses the carry that the previous stage produced at the previous token.
                    before, given = befores[index], carries[index]
                    carries[index] = given[:-1] if before is None else torch.cat((before[None], given[:-1]))
                    tokens[index] = tokens[index][len(tokens[index]) - len(carries[index]) :]
                befores[index] = context.last_carry[stage]
                if len(tokens[index]):
                    kept.append(index)
                    piece = self._piece(batch, row, tokens[index], carries[index], stage)
                    piece.num_logits = 1 if stage == 0 else 0
                    pieces.append(piece)
            if not pieces:
                break
            logits, carry = self._run(pieces, stage)
            start = 0
            for position, index in enumerate(kept):
                context = self._rows.contexts[batch.request_ids[rows[index]]]
                end = start + len(tokens[index])
                carries[index] = carry[start:end]
                self._rows.keep(batch.request_ids[rows[index]], stage, carries[index])
                if stage == 0:
                    context.last_logits = logits[position]
                start = end
            befores = [befores[index] for index in kept]
            rows = [rows[index] for index in kept]
            tokens, carries = [tokens[index] for index in kept], [carries[index] for index in kept]
        return [
            sketch
            for row in range(batch.batch_size)
            if self._rows.contexts[batch.request_ids[row]].last_logits is not None
            and (sketch := self._sketch(batch, row)) is not None
        ]

    @in_inference_mode
    def _combine(
        self, hidden_states: torch.Tensor, aux_hidden_states: tuple[torch.Tensor, ...]
    ) -> torch.Tensor:
        return self._head.combine(hidden_states, aux_hidden_states)

    def _sketch(self, batch: ProposeBatch, row: int) -> Sketch | None:
        context = self._rows.contexts[batch.request_ids[row]]
        max_depth = min(batch.max_nodes[row], self._max_len - batch.num_tokens[row])
        if context.is_lost or max_depth <= 0:
            return None
        return Sketch(row, batch.max_nodes[row], max_depth, width=1)

    def _grow(self, batch: ProposeBatch, drafting: list[Sketch]) -> list[Sketch]:
        """Draft for rows whose new tokens have been processed."""
        contexts = [self._rows.contexts[batch.request_ids[sketch.row]] for sketch in drafting]
        logits = torch.stack([context.last_logits for context in contexts])  # type: ignore[misc]  # set by _take_in
        if self._config.is_tree and self._head.num_stages == 1:
            trees = [GrowingTree(s.row, s.max_nodes, s.max_depth) for s in drafting]
            return self._growth.grow(
                batch, trees, logits, self._carries(contexts), partial(self._run_tree, batch)
            )
        if self._is_parallel:
            self._draft_at_once(batch, drafting, logits)
        elif self._is_chain and self._loop.can_draft(batch, drafting, self._runner.max_chain_rows):
            self._draft_compiled(batch, drafting, logits, contexts)
        else:
            self._draft_in_turn(batch, drafting, logits, contexts)
        return drafting

    def _carries(self, contexts: list[HeadContext], stage: int = 0) -> torch.Tensor:
        return torch.stack([context.last_carry[stage] for context in contexts])  # type: ignore[misc]  # set by _take_in

    def _draft_compiled(
        self, batch: ProposeBatch, drafting: list[Sketch], logits: torch.Tensor, contexts: list[HeadContext]
    ) -> None:
        output = ForwardOutput(logits, self._carries(contexts))
        call = partial(self._runner.draft_chain, output)
        self._loop.draft(batch, drafting, call, self._places(batch, drafting), self.target_info.eos_token_ids)

    def _places(self, batch: ProposeBatch, drafting: list[Sketch]) -> tuple[list[int], list[int]]:
        """Return each row's first slot and number of cached rows."""
        ids = [batch.request_ids[sketch.row] for sketch in drafting]
        pool = self._rows.pool
        return [pool.first_slot(i) for i in ids], [self._rows.contexts[i].num_rows[0] for i in ids]

    def _draft_in_turn(
        self, batch: ProposeBatch, drafting: list[Sketch], logits: torch.Tensor, contexts: list[HeadContext]
    ) -> None:
        """Draft depth by depth, cycling through the stages."""
        for sketch in drafting:
            sketch.width = self._config.tree_top_k
            deepest = self._config.tree_depth or sketch.max_depth
            sketch.max_depth = min(sketch.max_depth, deepest, -(-sketch.max_nodes // sketch.width))
        num_stages = self._head.num_stages
        active = list(range(len(drafting)))
        carry = self._carries(contexts)
        depth = 0
        while active:
            fed = self._extend(batch, [drafting[i] for i in active], logits)
            going = [i for i in active if drafting[i].num_wanted]
            if not going:
                return
            depth += 1
            stage, turn = depth % num_stages, depth // num_stages
            carry = carry[[active.index(i) for i in going]]
            active = going
            pieces = []
            for index, i in enumerate(active):
                context = contexts[i]
                # A stage has one drafted row per earlier turn; the first stage has none in turn 0.
                cached = context.num_rows[stage] + turn - (1 if stage == 0 else 0)
                position = context.num_tokens - 2 + depth - stage
                piece = self._piece(
                    batch, drafting[i].row, np.array([fed[drafting[i].row]]), carry[index : index + 1], stage
                )
                piece.num_cached, piece.positions = cached, np.array([position])
                pieces.append(piece)
            logits, carry = self._run(pieces, stage)

    def _draft_at_once(self, batch: ProposeBatch, drafting: list[Sketch], logits: torch.Tensor) -> None:
        """Draft in parallel: the first token from the last row, the others from mask tokens after it."""
        assert self._head.mask_id is not None and self._head.mask_feature is not None
        counts = [min(s.max_depth, s.max_nodes) - 1 for s in drafting]
        further = logits[:0]
        if sum(counts):
            pieces = []
            for sketch, count in zip(drafting, counts, strict=True):
                if count:
                    features = self._head.mask_feature.expand(count, -1)
                    ids = np.full(count, self._head.mask_id)
                    piece = self._piece(batch, sketch.row, ids, features, 0)
                    piece.num_logits = count
                    pieces.append(piece)
            further, _ = self._run(pieces, 0)
        starts = np.cumsum([0, *counts])
        active = list(range(len(drafting)))
        depth = 0
        current = logits
        while active:
            self._extend(batch, [drafting[i] for i in active], current)
            active = [i for i in active if drafting[i].num_wanted]
            current = further[[int(starts[i]) + depth for i in active]]
            depth += 1

    def _extend(self, batch: ProposeBatch, active: list[Sketch], logits: torch.Tensor) -> dict[int, int]:
        """Add one depth to each sketch; returns, by row of the batch, the id that each continues with."""
        threshold = self._config.draft_confidence_threshold
        return self._chooser.extend(active, logits, batch, threshold, self.target_info.eos_token_ids)

    def _piece(
        self, batch: ProposeBatch, row: int, ids: np.ndarray, features: torch.Tensor, stage: int
    ) -> Piece:
        """Return a piece with rows that follow those a stage holds of a request."""
        request_id = batch.request_ids[row]
        cached = self._rows.contexts[request_id].num_rows[stage]
        return Piece(ids, self._rows.pool.first_slot(request_id), cached, 1, features)

    def _run_tree(
        self,
        batch: ProposeBatch,
        trees: list[GrowingTree],
        nodes: list[list[int]],
        features: list[torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run nodes of trees, all at one depth; returns their logits and carries, concatenated tree by tree."""
        pieces = []
        for tree, chosen, given in zip(trees, nodes, features, strict=True):
            piece = self._piece(batch, tree.row, np.array([tree.draft_ids[n] for n in chosen]), given, 0)
            num_rows, num_before = piece.num_cached, tree.num_run
            piece.tree_mask = tree.run(chosen).to(self.target_info.device)
            piece.num_branched, piece.num_cached = num_before, num_rows + num_before
            piece.positions = np.array([num_rows + len(tree.paths[node]) - 1 for node in chosen])
            piece.num_logits = len(chosen)
            pieces.append(piece)
        return self._run(pieces, 0)

    def _run(self, pieces: list[Piece], stage: int) -> tuple[torch.Tensor, torch.Tensor]:
        logits, carry = run(partial(self._pass, stage), pieces, self._runner.device)
        assert carry is not None
        return logits, carry

    def _pass(
        self, stage: int, batch: PackedBatch, features: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert features is not None
        output = self._runner.forward(batch, features, stage)
        assert output.hidden_states is not None, "passes of heads return the carry"
        return output.logits, output.hidden_states
