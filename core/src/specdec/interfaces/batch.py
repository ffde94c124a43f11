"""What a proposer gets each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces.draws import Draws
from specdec.sampling_params import SamplingParams

HostIds = npt.NDArray[np.int32]


@dataclass(frozen=True)
class ProposeBatch:
    """One step's news for the proposer; row i of every field is `request_ids[i]`.

    Every running request is a row of every call, also where no draft is wanted (`max_nodes[i] == 0`), so that no cache
    goes stale. Tokens arrive in order and without holes; a start below what the proposer holds means: forget from there.
    Arrays and tensors are lent for the call: they are not written to, and what is kept of them is copied.
    """

    request_ids: tuple[str, ...]
    max_nodes: Sequence[int]
    """`[B]`: the most nodes for this step; 0 means take in the tokens, no draft wanted."""
    num_tokens: Sequence[int]
    """`[B]`: committed tokens, prompt included."""
    num_prompt_tokens: Sequence[int]
    starts: Sequence[int]
    """`[B]`: position of the first newly committed token."""
    counts: Sequence[int]
    """`[B]`: number of newly committed tokens."""
    new_token_ids: HostIds
    """`[T]` int32, packed row after row, read-only."""
    last_num_drafted: Sequence[int]
    """`[B]`: nodes of this row's previous draft that were scored; 0 if there was none."""
    last_num_accepted: Sequence[int]
    """`[B]`: how many of them were accepted."""
    sampling_params: tuple[SamplingParams, ...]
    draws: Draws
    """The noise source for proposers that draw."""
    token_ids_of: Callable[[int], HostIds]
    """Behind `token_ids`."""
    allowed_after: Callable[[int, Sequence[int]], torch.Tensor | None] | None = None
    """Behind `allowed`."""
    hidden_states: torch.Tensor | None = None
    """`[T, H]` with `HIDDEN_STATES`, also where nothing is new (T = 0); None without. Row j is the target's state that chose
    new token j, that is at the position before it, after the final norm. The row of a request's first prompt token is zeros."""
    aux_hidden_states: tuple[torch.Tensor, ...] = ()
    """One `[T, H]` per id of `aux_layer_ids` with `AUX_HIDDEN_STATES`, paired like `hidden_states`."""
    has_hidden: torch.Tensor | None = None
    """`[T]` bool: False where `hidden_states` has no state to give (the first prompt token)."""

    @property
    def batch_size(self) -> int:
        """Number of rows B."""
        return len(self.request_ids)

    def token_ids(self, row: int) -> HostIds:
        """Return a read-only int32 view `[num_tokens[row]]` of all committed tokens of a row, without copying."""
        return self.token_ids_of(row)

    def allowed(self, row: int, path: Sequence[int] = ()) -> torch.Tensor | None:
        """Return the grammar's bitmask `[ceil(V / 32)]` int32 after drafting `path`, or None without a grammar."""
        return None if self.allowed_after is None else self.allowed_after(row, path)


def _host_field(name: str) -> property:
    def refuse(self: DeviceProposeBatch) -> NoReturn:
        raise AttributeError(
            f"ProposeBatch.{name} is not available in the device form (Capability.ON_DEVICE)"
        )

    return property(refuse)


@dataclass(frozen=True)
class DeviceProposeBatch:
    """The form of `ProposeBatch` for `ON_DEVICE` proposers: what changes within a step stays on the device.

    Fields of the host form that would need a copy back raise `AttributeError`.
    """

    request_ids: tuple[str, ...]
    max_nodes: torch.Tensor
    """`[B]` int64, on the device."""
    max_nodes_bound: int
    """A host number that no entry of `max_nodes` exceeds: the width of the draft."""
    num_tokens: torch.Tensor
    """`[B]` int64: committed tokens, these new ones included."""
    starts: torch.Tensor
    """`[B]` int64: position of the first newly committed token."""
    counts: torch.Tensor
    """`[B]` int64: number of newly committed tokens."""
    new_token_ids: torch.Tensor
    """`[B, W]` int64, padded with -1; W = K + 1 while decoding, as wide as the longest piece while prompts arrive."""
    sampling_params: tuple[SamplingParams, ...]
    draws: Draws
    hidden_states: torch.Tensor | None = None
    """`[B, W, H]`, paired like `ProposeBatch.hidden_states`."""
    aux_hidden_states: tuple[torch.Tensor, ...] = ()

    num_prompt_tokens = _host_field("num_prompt_tokens")
    last_num_drafted = _host_field("last_num_drafted")
    last_num_accepted = _host_field("last_num_accepted")
    token_ids = _host_field("token_ids")
    allowed = _host_field("allowed")

    @property
    def batch_size(self) -> int:
        """Number of rows B."""
        return len(self.request_ids)
