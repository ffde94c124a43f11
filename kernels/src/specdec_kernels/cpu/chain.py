"""Drafts chains with a compiled model or head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache as remembered
from itertools import accumulate
from operator import add

import numpy as np
import numpy.typing as npt
import torch

from specdec.noise import Stream, node_word
from specdec_kernels.cpu.loops.chain import run_chain
from specdec_kernels.cpu.loops.product import MAX_PRODUCT_ROWS
from specdec_kernels.cpu.stack import CompiledStack
from specdec_kernels.layers.rotary import RotaryTables
from specdec_runtime.interfaces import Chains, ChainWork, DraftHead, NewRows, Runner

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_LOWEST_TEMPERATURE = 1e-35
_NONE = np.empty((0, 0), np.float32)
_NO_TOKENS = np.empty(0, np.int64)
_NO_CUTS = np.empty((0, 3), np.float32)
MAX_CHAIN_ROWS = MAX_PRODUCT_ROWS
"""Maximum number of rows for which `run_chain` is the fastest way."""


class CompiledChain:
    """The whole draft loop of a model or head in one call.

    Args:
        stack: the model.
        rotary: the model's rotary factors.
        runner: owner of the cache to use.
    """

    max_rows = max_new_rows = MAX_CHAIN_ROWS
    max_tree_nodes = 0

    def __init__(self, stack: CompiledStack, rotary: RotaryTables, runner: Runner) -> None:
        self._stack, self._rotary, self._runner = stack, rotary, runner

    def draft(self, logits: torch.Tensor, states: torch.Tensor | None, work: ChainWork) -> Chains:
        """Return the tokens of each row; see `Runner.draft_chain`."""
        num_rows = len(work.first_slots)
        carried = np.empty((num_rows, self._stack.hidden_size), np.float32)
        if states is not None:
            carried[:] = states.float().numpy()
        segments = _segments(range(num_rows), [1] * num_rows, work)
        length = max(work.num_cached) + work.num_steps
        own = np.array(logits.float().numpy())  # each step writes to it, and the caller keeps its own
        return self._run(None, own, carried, segments, length, work)

    def draft_after(self, rows: NewRows, work: ChainWork) -> Chains:
        """Run new rows first, then draft; see `Runner.draft_after`."""
        num_rows = len(work.first_slots)
        segments = _segments([0, *accumulate(rows.counts)][:-1], rows.counts, work)
        length = max(map(add, work.num_cached, rows.counts)) + work.num_steps
        logits = np.empty((num_rows, self._stack.num_logits), np.float32)
        states = np.empty((num_rows, self._stack.hidden_size), np.float32)
        return self._run(rows, logits, states, segments, length, work)

    def _run(
        self,
        rows: NewRows | None,
        logits: Floats,
        states: Floats,
        segments: Ints,
        length: int,
        work: ChainWork,
    ) -> Chains:
        cache, keys, rules, num_steps = self._runner.cache, work.keys, work.rules, work.num_steps
        num_rows, stack = len(logits), self._stack
        tokens, features, taken_logits, taken_states = _NO_TOKENS, _NONE, _NONE, _NONE
        if rows is not None:
            tokens, module = rows.token_ids, self._runner.module
            if isinstance(module, DraftHead):
                combined = module.combine(rows.states[0], rows.states[1:])
                features = combined.float().contiguous().numpy()
            taken_logits, taken_states = np.empty_like(logits), np.empty_like(states)
        out = np.empty((num_rows, num_steps), np.int64)
        confidences = np.empty((num_rows, num_steps if rules.threshold else 0), np.float32)
        draft_probs = np.empty((num_rows, num_steps, rules.num_ids if rules.is_drawn else 0), np.float32)
        # A positive temperature that float32 rounds to 0 is still not greedy.
        temperatures = np.array(
            [max(t, _LOWEST_TEMPERATURE) if t > 0 else 0.0 for t in work.temperatures], np.float32
        )
        target_ids = _NO_TOKENS if rules.target_ids is None else rules.target_ids
        more_ids, more_ends = _NO_TOKENS, _NO_TOKENS
        if (
            work.more_ids and rows is not None and not rules.is_drawn
        ):  # else there are no states, or q is not of all ids
            more_ids, more_ends = np.concatenate(work.more_ids), np.cumsum([*map(len, work.more_ids)])
            if rules.target_ids is None:
                target_ids = np.arange(rules.num_ids)
        if length > self._rotary.num_positions:
            self._rotary.cover(length)
        stack.bind(cache, self._rotary.by_layer)
        cuts = np.array(work.cuts, np.float32) if work.cuts else _NO_CUTS
        ratio = rules.threshold / (1.0 - rules.threshold) if rules.is_paired else 1.0
        count = run_chain(
            tokens, features, taken_logits, taken_states, logits, states, rules.num_ids, target_ids, more_ids, more_ends,
            temperatures, cuts, keys.seeds, keys.samples, keys.positions, _words(num_steps, rules.is_drawn), not rules.is_drawn,
            np.float32(rules.threshold), ratio, stack.draft_tables, cache.num_slots, segments, out, confidences, draft_probs,
        )  # fmt: skip
        return Chains(
            torch.from_numpy(out[:, :count]),
            torch.from_numpy(confidences[:, :count]),
            torch.from_numpy(draft_probs[:, :count]),
            torch.from_numpy(taken_logits),
            torch.from_numpy(taken_states),
        )


def _segments(starts: Iterable[int], counts: Sequence[int], work: ChainWork) -> Ints:
    """Return the segments `[5, B]` of chains, see `Table`."""
    return np.array([list(starts), counts, work.first_slots, work.num_cached, [-1] * len(counts)], np.int64)


@remembered
def _words(num_steps: int, is_drawn: bool) -> Ints:
    """Return the counter words of the draws of a chain."""
    stream = Stream.DRAFT if is_drawn else Stream.TARGET
    return np.array([node_word(stream, step if is_drawn else 0) for step in range(num_steps)])
