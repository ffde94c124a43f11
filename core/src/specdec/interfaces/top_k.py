"""The target's most probable tokens, for proposers that ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class TargetTopK:
    """What the target holds for most probable after each of N tokens that the last step verified, rejected ones too.

    They are before any sampling parameter, and packed row after row. Arrays are read-only and valid during the call.
    """

    rows: Sequence[int]
    """`[N]`: row of the batch."""
    nodes: Sequence[int]
    """`[N]`: node of the row's last draft; -1 for the last token that was committed before it."""
    token_ids: _Ids
    """`[N]` int32: the tokens themselves."""
    top_ids: _Ids
    """`[N, K]` int32: ids after each token, most probable first."""
    logprobs: npt.NDArray[np.float32]
    """`[N, K]`: their log probabilities."""
