"""Drafts chains with a model or head that runs compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces.draws import NoiseKeys
from specdec.noise import Stream, node_word
from specdec.runner.fused.host_stack import HostStack
from specdec.runner.fused.rotary import RotaryTable
from specdec.runner.host.chain import run_chain
from specdec.runner.host.product import MAX_PRODUCT_ROWS
from specdec.runner.kv_cache import KVCache

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_LOWEST_TEMPERATURE = 1e-35
MAX_CHAIN_ROWS = MAX_PRODUCT_ROWS
"""The most rows that `run_chain` is the fastest way for."""


@dataclass(frozen=True)
class ChainRules:
    """How a chain chooses its tokens.

    Args:
        num_ids: only logits below it are looked at.
        target_ids: `[num_ids]` the target's id of each, ascending, or None where they are the same.
        is_drawn: whether tokens are drawn from a stream of their own and the laws kept; else the noise of `strict` chooses.
        wants_chances: whether the probability of each token is wanted.
    """

    num_ids: int
    target_ids: Ints | None = None
    is_drawn: bool = False
    wants_chances: bool = False


@dataclass(frozen=True)
class Chains:
    """What was drafted."""

    token_ids: Ints
    """`[B, K]` the target's ids."""
    chances: Floats
    """`[B, K]` the draft's own probability of each, or empty."""
    laws: Floats
    """`[B, K, num_ids]` the law each was drawn from, or empty."""


class HostChain:
    """The whole draft loop of a model or head in one call.

    Args:
        stack: the model.
        rotary: its rotary factors.
    """

    def __init__(self, stack: HostStack, rotary: RotaryTable) -> None:
        self._stack, self._rotary = stack, rotary

    def draft(
        self,
        cache: KVCache,
        logits: torch.Tensor,
        states: torch.Tensor | None,
        first_slots: Sequence[int],
        num_cached: Sequence[int],
        num_steps: int,
        temperatures: Sequence[float],
        keys: NoiseKeys,
        rules: ChainRules,
    ) -> Chains:
        """Return `num_steps` tokens for each row; see `ModelRunner.draft_chain`."""
        num_rows, stack = len(first_slots), self._stack
        segments = np.array(
            [range(num_rows), [1] * num_rows, first_slots, num_cached, [-1] * num_rows], np.int64
        )
        out = np.empty((num_rows, num_steps), np.int64)
        chances = np.empty((num_rows, num_steps if rules.wants_chances else 0), np.float32)
        laws = np.empty((num_rows, num_steps, rules.num_ids if rules.is_drawn else 0), np.float32)
        stream = Stream.DRAFT if rules.is_drawn else Stream.TARGET
        words = np.array([node_word(stream, step if rules.is_drawn else 0) for step in range(num_steps)])
        carried = np.empty((num_rows, stack.hidden_size), np.float32)
        if states is not None:
            carried[:] = states.float().numpy()
        # A temperature that float32 rounds to 0 is still not greedy.
        heat = np.array([max(t, _LOWEST_TEMPERATURE) if t > 0 else 0.0 for t in temperatures], np.float32)
        run_chain(
            logits.float().contiguous().numpy(), carried, rules.num_ids,
            np.empty(0, np.int64) if rules.target_ids is None else rules.target_ids, heat,
            keys.seeds, keys.samples, keys.positions, words, not rules.is_drawn, stack.table, stack.frame,
            stack.numbers, stack.like, stack.bind(cache), cache.num_slots,
            *self._rotary.host_tables(max(num_cached) + num_steps), segments, out, chances, laws,
        )  # fmt: skip
        return Chains(out, chances, laws)
