"""What a proposer sees of one sequence: copies that the engine never reads, whatever is done to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import BaseModel

from specdec.interfaces.batch import TokenIds
from specdec.interfaces.grammar import GrammarState
from specdec.sampling_params import SamplingParams

if TYPE_CHECKING:
    from specdec.engine.sequence import Sequence


class Shown:
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

    def allowed(self, tokens: TokenIds) -> Callable[[Ids[int]], torch.Tensor] | None:
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
        self._num_tokens = num_prompt_tokens
        self._turn = threading.Lock()  # threads of the plugin may ask, and the matcher is native code

    def after(self, tokens: TokenIds, path: Ids[int]) -> torch.Tensor:
        """Return the bitmask `[ceil(V / 32)]` int32 after `tokens` and then `path`."""
        with self._turn:
            grammar = self._made = self._made or self._begin()
            if self._num_tokens < len(tokens):
                grammar.advance(tokens[self._num_tokens :].tolist())
                self._num_tokens = len(tokens)
            return grammar.mask_after(path)


def separate(params: SamplingParams) -> SamplingParams:
    """Return a copy of sampling parameters that shares no list, mapping or model with them."""
    return params.model_copy(update={name: _separate(value) for name, value in params})


def _separate(value: Any) -> Any:
    if isinstance(value, list):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return value.model_copy(deep=True) if isinstance(value, BaseModel) else value
