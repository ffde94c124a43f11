"""The input of a proposer in one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces.draws import Draws
from specdec.interfaces.pass_memory import VerdictOffsets
from specdec.interfaces.request_table import RequestTable
from specdec.sampling_params import SamplingParams

TokenIds = npt.NDArray[np.int32]


@dataclass(frozen=True)
class ProposeBatch:
    """The newly committed tokens of one step; row i of every field belongs to `request_ids[i]`.

    Every running request has a row in every call, even if no draft is wanted (`max_nodes[i] == 0`), so that
    the proposer's caches stay up to date. Tokens arrive in order and without gaps. If `starts[i]` is below
    the number of tokens that the proposer holds, it must drop its state from that position on. Arrays and
    tensors are the proposer's own, and valid only during the call: copy what you keep. What is written to them is lost
    on the engine, and may be what the proposer reads later.
    """

    request_ids: tuple[str, ...]
    """`[B]`: the same from call to call; an id may come again after `finish`."""
    max_nodes: Sequence[int]
    """`[B]`: maximum number of nodes to draft in this step; 0 means process the tokens without drafting."""
    num_tokens: Sequence[int]
    """`[B]`: number of committed tokens, prompt included."""
    num_prompt_tokens: Sequence[int]
    """`[B]`: how many of the tokens are the prompt's."""
    starts: Sequence[int]
    """`[B]`: position of the first newly committed token."""
    counts: Sequence[int]
    """`[B]`: number of newly committed tokens."""
    new_token_ids: TokenIds
    """`[T]` int32, packed row after row, read-only."""
    last_num_drafted: Sequence[int]
    """`[B]`: number of nodes of this row's previous draft that were scored; 0 if there was none."""
    last_num_accepted: Sequence[int]
    """`[B]`: how many of them were accepted."""
    sampling_params: tuple[SamplingParams, ...]
    """`[B]`: of each request."""
    draws: Draws
    """The noise source for proposers that sample their tokens."""
    token_ids_of: Callable[[int], TokenIds]
    """Implements `token_ids`."""
    allowed_after: Callable[[int, Sequence[int]], torch.Tensor | None] | None = None
    """Implements `allowed`."""
    hidden_states: torch.Tensor | None = None
    """`[T, H]` with `HIDDEN_STATES`, even if no token is new (T = 0); None without. Row j is the target's
    hidden state that predicted new token j: the state at the position before it, after the final norm. The
    row of a request's first prompt token is zeros."""
    aux_hidden_states: tuple[torch.Tensor, ...] = ()
    """With `AUX_HIDDEN_STATES`: one `[T, H]` per id of `aux_layer_ids`; rows as in `hidden_states`."""
    top_k: TargetTopK | None = None
    """With `TARGET_TOP_K`: what the target holds for most probable after each token of the last step; None without, or if
    nothing was verified since the last call."""
    has_hidden: torch.Tensor | None = None
    """`[T]` bool: False where `hidden_states` has no state (the first prompt token)."""

    table: RequestTable | None = None
    """With `REQUEST_TABLE`: the committed tokens of all requests, to be read only. None without."""
    lines: Sequence[int] = ()
    """`[B]` with `REQUEST_TABLE`: each row's line in the table; any line for a request that has ended. Empty without."""

    last_draft_at: Sequence[int] = ()
    """`[B]` with `BEFORE_VERDICT`: number of committed tokens that this draft followed; the host may not have known the last of
    them when it was made. 0 if there was none."""
    verdict: VerdictOffsets | None = None
    """Where the device has the verdict on the last draft of the proposer, if its requests were these rows and nothing else was
    kept of it; None otherwise."""
    num_unread: Sequence[int] = ()
    """`[B]` with `BEFORE_VERDICT`, if the host has not read that verdict: the most tokens that it adds to `num_tokens`. Hidden
    states are then None, because they are where the verdict is. Empty if the host has read it."""

    first_slots: Sequence[int] = ()
    """`[B]` with `TARGET_CACHE`: see `Segment.first_slot`; any number for rows without a place in the target's cache. Where
    `max_nodes[i] > 0`, the rows of all committed tokens but the last one are in the cache. Empty without."""

    @property
    def batch_size(self) -> int:
        """Number of rows B."""
        return len(self.request_ids)

    def token_ids(self, row: int) -> TokenIds:
        """Return a read-only int32 view `[num_tokens[row]]` of all committed tokens of a row, in the proposer's own memory."""
        return self.token_ids_of(row)

    def allowed(self, row: int, path: Sequence[int] = ()) -> torch.Tensor | None:
        """Return the grammar's bitmask `[ceil(V / 32)]` int32 after drafting `path`, or None without a grammar."""
        return None if self.allowed_after is None else self.allowed_after(row, path)


@dataclass(frozen=True)
class TargetTopK:
    """What the target holds for most probable after each of N tokens that the last step verified, rejected ones too.

    They are before any sampling parameter, and packed row after row. Arrays are read-only and valid during the call.
    """

    rows: Sequence[int]
    """`[N]`: row of the batch."""
    nodes: Sequence[int]
    """`[N]`: node of the row's last draft; -1 for the last token that was committed before it."""
    token_ids: TokenIds
    """`[N]` int32: the tokens themselves."""
    top_ids: TokenIds
    """`[N, K]` int32: ids after each token, most probable first."""
    logprobs: npt.NDArray[np.float32]
    """`[N, K]`: their log probabilities."""
