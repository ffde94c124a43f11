"""What a proposer is given of sequences: copies that the engine never reads, whatever is done to them, and noise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from copy import copy
from functools import partial
from operator import index as as_int
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import BaseModel

from specdec.config.notices import draft_ends
from specdec.interfaces.batch import TokenIds
from specdec.interfaces.draws import NoiseKeys
from specdec.interfaces.grammar import GrammarState
from specdec.noise import Stream, node_word, row_operations
from specdec.sampling_params import SamplingParams

if TYPE_CHECKING:
    from specdec.engine.sequence import Sequence


class PluginView:
    """A copy of a sequence's tokens, extended by the new ones in each step, and of its grammar.

    Args:
        sequence: the sequence; it is not kept.
    """

    def __init__(self, sequence: Sequence) -> None:
        memory = bytearray(np.dtype(np.int32).itemsize * sequence.max_num_tokens)
        self._array: TokenIds = np.frombuffer(memory, np.int32)
        # An array of its own over the same memory, which numpy makes nobody writable.
        self._readable: TokenIds = np.frombuffer(memoryview(memory).toreadonly(), np.int32)
        self._num_tokens = 0
        grammar = None if sequence.rules is None else sequence.rules.grammar
        self._lookahead = None if grammar is None else _Lookahead(grammar, sequence.num_prompt_tokens)

    def tokens(self, sequence: Sequence) -> TokenIds:
        """Append the sequence's new tokens; returns a read-only view of all."""
        first, end = self._num_tokens, sequence.num_tokens
        if end > first:
            self._array[first:end] = sequence.token_ids[first:end]
            self._num_tokens = end
        return self._readable[:end]

    def allowed(self, tokens: TokenIds) -> Callable[[Ids[int]], torch.Tensor | None] | None:
        """Return the implementation of `ProposeBatch.allowed` for a row with these tokens; None without a grammar."""
        return None if self._lookahead is None else partial(self._lookahead.after, tokens)


class _Lookahead:
    """A state of a sequence's grammar of the proposer's own, made when it first asks; follows the tokens it is shown.

    Args:
        grammar: the sequence's; only its rules are used.
        num_prompt_tokens: tokens before the text of the grammar.
    """

    def __init__(self, grammar: GrammarState, num_prompt_tokens: int) -> None:
        self._begin = grammar.begin
        self._made: GrammarState | None = None
        self._has_failed = False
        self._num_tokens = num_prompt_tokens
        self._turn = threading.Lock()  # threads of the plugin may ask, and the matcher is native code

    def after(self, tokens: TokenIds, path: Ids[int]) -> torch.Tensor | None:
        """Return the bitmask `[ceil(V / 32)]` int32 after `tokens` and then `path`; None once the grammar has failed.

        An exception would count as the proposer's, and pause it for all requests.
        """
        steps = [*map(as_int, path)]  # exact ints; what is no path is the plugin's own fault
        with self._turn:
            if self._has_failed:
                return None
            try:
                grammar = self._made = self._made or self._begin()
                if self._num_tokens < len(tokens):
                    grammar.advance(tokens[self._num_tokens :].tolist())
                    self._num_tokens = len(tokens)
                return grammar.mask_after(steps)
            except BaseException as error:
                draft_ends("looking ahead in a grammar", error)
                self._has_failed = True
                return None


_UNSHARED = (NoneType, bool, int, float, str)
"""Types of values that cannot change."""


def separate(params: SamplingParams) -> SamplingParams:
    """Return a copy of sampling parameters that shares no list, mapping or model with them."""
    held = {name: _separate(value) for name, value in vars(params).items() if type(value) not in _UNSHARED}
    return params.model_copy(update=held)


def _separate(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_copy(deep=True)
    return copy(value) if isinstance(value, (list, Mapping)) else value


class EngineDraws:
    """Draws keyed by each request's seed; see `specdec.interfaces.Draws`.

    Args:
        sequences: the rows of the batch; they are not kept.
        device: device of the noise; None for the CPU.
    """

    def __init__(self, sequences: list[Sequence], device: torch.device | None = None) -> None:
        self._keys = [(s.seed, s.sample_index, s.num_tokens) for s in sequences]
        self._device = device or torch.device("cpu")

    def sample(self, logits: torch.Tensor, rows: Ids[int], node: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw one token per row from the draft noise stream; returns tokens `[R]` and q `[R, V']`."""
        probs = torch.softmax(logits.float(), -1)
        return self._race(probs, rows, node_word(Stream.DRAFT, node), 0), probs

    def coupled(self, logits: torch.Tensor, rows: Ids[int], depth: int) -> torch.Tensor:
        """Choose one token per row with the noise that `strict` uses at that position; returns `[R]`."""
        probs = torch.softmax(logits.float(), -1)
        return self._race(probs, rows, node_word(Stream.TARGET), depth - 1)

    def coupled_noise(self, rows: Ids[int], depth: int, num_ids: int) -> torch.Tensor:
        """Return the Gumbel noise `[R, num_ids]` that `strict` uses at that position."""
        keys, word = self.coupled_keys(rows), node_word(Stream.TARGET)
        place = keys.seeds, keys.positions + depth - 1, keys.samples
        return row_operations(self._device).gumbel(*place, word, num_ids)

    def coupled_keys(self, rows: Ids[int]) -> NoiseKeys:
        """Return seeds, sample indices and next positions of rows."""
        table = np.array([self._keys[row] for row in rows], np.int64)
        return NoiseKeys(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())

    def _race(self, probs: torch.Tensor, rows: Ids[int], word: int, offset: int) -> torch.Tensor:
        keys = self.coupled_keys(rows)
        words = torch.full((len(rows),), word, device=probs.device)
        place = keys.seeds, keys.positions + offset, keys.samples
        return row_operations(probs.device).multinomial(probs, *place, words)
