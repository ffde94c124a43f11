"""`draft_model`: a smaller causal language model proposes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from specdec.interfaces import (
    Capability,
    ChainWork,
    Draft,
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
from specdec.runner import SlotPool, in_inference_mode
from specdec_drafting import ChainCall, ChainLoop, Chooser, Piece, Places, Sketch, draft_of, run
from specdec_plugin_draft_model.config import DraftModelConfig
from specdec_plugin_draft_model.context import DraftContext
from specdec_plugin_draft_model.mask_token import mask_token
from specdec_plugin_draft_model.tokenizers import choose_vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LAZY_TOKENS = 64
"""Requests without a draft are processed only once they have this many new tokens."""


class DraftModelProposer(Proposer):
    """Runs a draft model on core's cache; the pass that drafts the first token also processes the new tokens.

    Speculative decoding with a draft model (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318); parallel
    drafting with mask tokens as in PARD (arXiv 2504.18583). After a partial acceptance the rows of accepted tokens are kept,
    and the next pass overwrites the others.
    """

    name: ClassVar[str] = "draft_model"
    Config: ClassVar[type[ProposerConfig]] = DraftModelConfig
    capabilities = frozenset({Capability.OWN_KV, Capability.DRAFT_PROBS, Capability.TREE})

    def __init__(self, config: DraftModelConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self._config = config
        self._is_drawn = config.draft_sample_method == "probabilistic"
        given = {
            Capability.OWN_KV: True,
            Capability.DRAFT_PROBS: self._is_drawn,
            Capability.TREE: config.tree_top_k > 1,
        }
        self.capabilities = frozenset(capability for capability, is_given in given.items() if is_given)
        self._contexts: dict[str, DraftContext] = {}
        self._made: SlotPool | None = None

    def load(self, target: TargetHandle) -> None:
        """Load the draft, check its vocabulary, and make its runner.

        Raises:
            ModelError: if the model cannot be loaded, or cannot run on core's cache.
            ConfigError: if it does not fit the target or the configuration.
        """
        config = self._config
        assert config.model is not None
        model = target.load_model(
            config.model,
            revision=config.revision,
            dtype=config.dtype,
            quantization=config.quantization,
            tensor_parallel_size=config.draft_tensor_parallel_size,
        )
        self._runner = target.make_runner(model)
        num_ids = _num_logits(model)
        self._vocabulary = choose_vocabulary(config, target, num_ids)
        self._chooser = Chooser(
            config.draft_sample_method,
            self._vocabulary,
            wants_confidence=config.draft_confidence_threshold > 0,
        )
        self._mask_id = mask_token(model.config, num_ids, config.model) if config.parallel_drafting else None
        trained = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self._max_len = min(config.max_model_len or target.info.max_model_len, trained or 2**31)
        threshold = config.draft_confidence_threshold
        self._loop = ChainLoop(config.draft_sample_method, self._vocabulary, num_ids, threshold)
        self._warm_up(num_ids)
        self._made = None

    @property
    def _pool(self) -> SlotPool:
        """The slots of requests; created with the first request, because the cache is allocated after `load`."""
        if self._made is None:
            self._made = SlotPool(self._runner.cache, self.target_info.prefix_block_size)
        return self._made

    def _warm_up(self, num_ids: int) -> None:
        """Compile the draft loop in advance, so that the first step is as fast as the others."""
        if self._runner.max_chain_rows:
            zero = np.zeros(1, np.int64)
            keys = NoiseKeys(zero, zero, zero)
            work = ChainWork([0], [0], 2, [0.0], keys, self._loop.rules)
            self._runner.draft_chain(ForwardOutput(torch.zeros(1, num_ids)), work)

    @in_inference_mode
    def propose(self, batch: ProposeBatch) -> Draft:
        """Process the new tokens and draft for every row that wants a draft."""
        sketches: list[Sketch | None] = []
        pieces: list[Piece] = []
        drafting: list[Sketch] = []
        # Reserve slots for the deepest draft of the batch, because compiled loops run all rows to that depth.
        num_ahead = max(batch.max_nodes, default=0)
        for row in range(batch.batch_size):
            sketch, piece = self._prepare(batch, row, num_ahead)
            sketches.append(sketch)
            if piece is not None:
                pieces.append(piece)
            if sketch is not None:
                drafting.append(sketch)
        if pieces and len(pieces) == len(drafting) and self._can_chain(batch, drafting, pieces):
            self._draft_after(batch, drafting, pieces)
        elif pieces:
            logits = self._run(pieces)
            if drafting:
                self._grow(batch, drafting, logits)
        for row, request_id in enumerate(batch.request_ids):
            if batch.counts[row]:
                self._publish(request_id, batch.token_ids(row))
        return draft_of(
            sketches,
            self.target_info.device,
            is_tree=self._config.tree_top_k > 1,
            has_confidence=self._config.draft_confidence_threshold > 0,
            vocab_map=self._vocabulary.target_ids,
        )

    def resume(self, request_id: str, token_ids: HostIds) -> int:
        """Reuse the rows of a cached prefix."""
        draft_ids = self._vocabulary.to_draft(token_ids)
        num_rows = self._pool.resume(request_id, draft_ids)
        if not num_rows:
            return 0
        held = self._vocabulary.num_within(token_ids, num_rows)
        context = self._contexts[request_id] = DraftContext()
        context.num_taken, context.num_rows = held, self._vocabulary.num_draft_ids(token_ids[:held])
        return held

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop the state of these requests."""
        for request_id in request_ids:
            self._contexts.pop(request_id, None)
            if self._made is not None:
                self._made.release(request_id)

    def _prepare(self, batch: ProposeBatch, row: int, num_ahead: int) -> tuple[Sketch | None, Piece | None]:
        """Update a request's context; return its empty sketch and the piece that the next pass has to process."""
        request_id = batch.request_ids[row]
        context = self._contexts.get(request_id)
        if context is None:
            context = self._contexts[request_id] = DraftContext()
        committed = batch.token_ids(row)
        if batch.starts[row] < context.num_taken:
            self._pool.forget_from(request_id, self._vocabulary.num_draft_ids(committed[: batch.starts[row]]))
        context.settle(committed, batch.starts[row], self._vocabulary)
        num_tokens = batch.num_tokens[row]
        most = batch.max_nodes[row]
        waiting = num_tokens - context.num_taken
        if not most and waiting < _LAZY_TOKENS:
            return None, None
        if context.num_rows + waiting > self._max_len:  # each token takes at least one row
            return None, None
        if most and not waiting:
            # The first logits come from the row of the last token, so it runs again.
            context.num_taken -= 1
            context.num_rows -= self._vocabulary.num_draft_ids(committed[-1:])
        ids = self._vocabulary.to_draft(committed[context.num_taken : num_tokens])
        num_rows = context.num_rows + len(ids)
        max_depth = min(most, self._max_len - num_rows)
        if num_rows > self._max_len:
            return None, None
        if not self._reserve(batch, request_id, num_rows + num_ahead, context.num_rows):
            self._pool.release(request_id)
            context.num_taken = context.num_rows = 0
            return None, None
        first_slot = self._pool.first_slot(request_id)
        sketch = None
        if max_depth > 0:
            width = self._config.tree_top_k
            sketch = Sketch(row, most, min(max_depth, -(-most // width)), width)
        num_logits = 0 if sketch is None else 1
        if sketch is not None and self._mask_id is not None:
            num_logits = sketch.max_depth
            ids = np.concatenate((ids, np.full(num_logits - 1, self._mask_id)))
        piece = Piece(ids, first_slot, context.num_rows, num_logits)
        context.num_taken, context.num_rows = num_tokens, num_rows
        return sketch, piece

    def _reserve(self, batch: ProposeBatch, request_id: str, num_slots: int, num_kept: int) -> bool:
        """Reserve slots for a request, if necessary by evicting requests outside the batch, which are recomputed later."""
        if self._pool.reserve(request_id, num_slots, num_kept):
            return True
        others = self._contexts.keys() - set(batch.request_ids)
        for other in others:
            del self._contexts[other]
            self._pool.release(other)
        if self._pool.reserve(request_id, num_slots, num_kept):
            return True
        self._pool.note_full(num_slots)
        return False

    def _publish(self, request_id: str, token_ids: HostIds) -> None:
        """Publish the rows of a request's committed tokens for prefix reuse."""
        context = self._contexts[request_id]
        if context.num_rows and self._pool.is_publishable(request_id, context.num_rows):
            self._pool.publish(request_id, self._vocabulary.to_draft(token_ids[: context.num_taken]))

    def _grow(self, batch: ProposeBatch, drafting: list[Sketch], logits: torch.Tensor) -> None:
        if self._can_chain(batch, drafting):
            self._draft_compiled(batch, drafting, logits)
        elif self._mask_id is None:
            self._draft_in_turn(batch, drafting, logits)
        else:
            self._draft_at_once(batch, drafting, logits)

    def _run(self, pieces: list[Piece]) -> torch.Tensor:
        """Run pieces; return the logits `[R, Vd]` of the rows that produce logits."""
        return run(self._pass, pieces, self._runner.device)[0]

    def _pass(self, batch: PackedBatch, features: torch.Tensor | None) -> tuple[torch.Tensor, None]:
        return self._runner.forward(batch).logits, None

    def _can_chain(self, batch: ProposeBatch, drafting: list[Sketch], pieces: Sequence[Piece] = ()) -> bool:
        """Return whether one call can draft the chains and process these pieces."""
        is_chain = self._mask_id is None and self._config.tree_top_k == 1
        is_small = sum(len(piece.ids) for piece in pieces) <= self._runner.max_new_rows
        most = self._runner.max_chain_rows
        return is_chain and (is_small or not pieces) and self._loop.can_draft(batch, drafting, most)

    def _draft_compiled(self, batch: ProposeBatch, drafting: list[Sketch], logits: torch.Tensor) -> None:
        """Draft chains in one compiled call."""
        ids = [batch.request_ids[sketch.row] for sketch in drafting]
        contexts = [self._contexts[request_id] for request_id in ids]
        first_slots = [self._pool.first_slot(request_id) for request_id in ids]
        places = first_slots, [context.num_rows for context in contexts]
        self._draft_with(partial(self._runner.draft_chain, ForwardOutput(logits)), places, batch, drafting)

    def _draft_after(self, batch: ProposeBatch, drafting: list[Sketch], pieces: list[Piece]) -> None:
        """Process the pieces, one per sketch, and draft chains in one call."""
        ids = [piece.ids for piece in pieces]
        rows = NewRows(ids[0] if len(ids) == 1 else np.concatenate(ids), [len(tokens) for tokens in ids])
        places = [piece.first_slot for piece in pieces], [piece.num_cached for piece in pieces]
        self._draft_with(partial(self._runner.draft_after, rows), places, batch, drafting)

    def _draft_with(
        self, call: ChainCall, places: Places, batch: ProposeBatch, drafting: list[Sketch]
    ) -> None:
        fed = self._loop.draft(batch, drafting, call, places, self.target_info.eos_token_ids).fed
        for sketch, tokens in zip(drafting, fed, strict=True):
            self._contexts[batch.request_ids[sketch.row]].guesses = tokens

    def _draft_in_turn(self, batch: ProposeBatch, drafting: list[Sketch], logits: torch.Tensor) -> None:
        """Draft one depth after another, each with a pass over the previously chosen tokens."""
        active = drafting
        while active:
            fed = self._extend(batch, active, logits)
            active = [sketch for sketch in active if sketch.num_wanted]
            if not active:
                return
            pieces = []
            for sketch in active:
                request_id = batch.request_ids[sketch.row]
                context = self._contexts[request_id]
                cached = context.num_rows + len(context.guesses)
                pieces.append(
                    Piece(np.array([fed[sketch.row]], np.int64), self._pool.first_slot(request_id), cached, 1)
                )
                context.guesses.append(sketch.path[-1])
            logits = self._run(pieces)

    def _draft_at_once(self, batch: ProposeBatch, drafting: list[Sketch], logits: torch.Tensor) -> None:
        """Draft from the logits of the last token and of the mask tokens after it."""
        starts = np.cumsum([0, *(sketch.max_depth for sketch in drafting)])
        active = list(range(len(drafting)))
        depth = 0
        while active:
            rows = [int(starts[i]) + depth for i in active]
            self._extend(batch, [drafting[i] for i in active], logits[rows])
            active = [i for i in active if drafting[i].num_wanted]
            depth += 1

    def _extend(self, batch: ProposeBatch, active: list[Sketch], logits: torch.Tensor) -> dict[int, int]:
        """Add one depth to each sketch; return the draft id that each continues with, by row of the batch."""
        threshold = self._config.draft_confidence_threshold
        return self._chooser.extend(active, logits, batch, threshold, self.target_info.eos_token_ids)


def _num_logits(model: PreTrainedModel) -> int:
    head = model.get_output_embeddings()
    return int(getattr(head, "out_features", 0) or model.config.get_text_config().vocab_size)
