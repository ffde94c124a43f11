"""Draft loops whose steps need no cache, as those of heads that read the target's last state alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from specdec_runtime.interfaces.chain import Chains, ChainWork


class Steps(Protocol):
    """What gives the logits of one depth after another."""

    def begin(self, states: torch.Tensor) -> Any:
        """Return what step 0 reads, for R requests, of what is given to a draft `[R, ...]`: a tensor `[R, ...]`, or several."""

    def step(self, index: int, states: Any, token_ids: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Return what the next step reads, and logits `[R, V']`, after tokens `[R]`, the target's ids."""


class StepLoop(Protocol):
    """Runs the steps of a draft without returning to Python between them; see `ModelBackend.steps`."""

    @property
    def max_rows(self) -> int:
        """Maximum number of requests of a draft."""

    def prepare(self, num_requests: int, work: ChainWork) -> None:
        """Record or compile the loops that will be asked for.

        Args:
            num_requests: the most of a batch.
            work: the longest draft of one request.
        """

    def draft(
        self, token_ids: npt.NDArray[np.int64], given: Sequence[torch.Tensor], work: ChainWork
    ) -> Chains:
        """Return a chain for each request.

        Args:
            token_ids: `[R]` the last tokens; none with `ChainWork.is_unread`.
            given: `[R]` what each begins with, likewise; some may have fewer rows than others.
            work: what to draft; rows in the cache are the tokens of a text.

        Raises:
            NeedsTokens: if the host has to read the verdict first; see `ChainWork.is_unread`.
        """
