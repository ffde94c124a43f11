"""The sizes, flags and addresses that compiled passes need of a model, as one array of integers, and the types of weights."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Part(IntEnum):
    """Entries of a frame. The address of a part that a model does not have is 0; flags are 0 or 1."""

    EMBEDDING = 0
    HEAD = 1
    HEAD_BIAS = 2
    FIRST_NORM = 3
    """Norm of the first layer's input; 0 if the input is not normalized."""
    JOIN = 4
    """For heads: the map `[H, 2 H]` from an embedding and a feature to the first layer's input. If it is 0, the first layer
    takes both, `[2 H]`, and the feature is the residual stream."""
    JOIN_BIAS = 5
    EMBED_NORM = 6
    FEATURE_NORM = 7
    HIDDEN = 8
    NUM_LOGITS = 9
    NUM_HEADS = 10
    NUM_KV_HEADS = 11
    HEAD_DIM = 12
    INTERMEDIATE = 13
    NUM_IDS = 14
    """Number of rows of the embedding."""
    TAKES_FEATURES = 15
    IS_FEATURE_FIRST = 16
    """The feature comes before the embedding in their concatenation."""
    IS_NORMED_RESIDUAL = 17
    """Without a join, the residual stream is the normalized feature."""
    IS_NORMED_STATE = 18
    """The state that a pass returns is the final norm's output rather than its input."""
    IS_ROUNDED = 19
    """Inputs of products with weights are rounded to bfloat16 first, as in a model that runs in bfloat16."""
    GROUP = 20
    """Weights of 4 bits that share a scale; 0 if there are none."""


class Likes(NamedTuple):
    """Any arrays of the types that weights are stored in."""

    embedding: npt.NDArray[np.generic]
    layers: npt.NDArray[np.generic]
    """The weights of the layers, and `Part.JOIN`."""
    head: npt.NDArray[np.generic]


class Number(IntEnum):
    """Entries of the array of floating-point numbers that accompanies a frame."""

    EPSILON = 0
    """Epsilon of norms over the hidden size."""
    HEAD_EPSILON = 1
    """Epsilon of query and key norms."""
    SCALING = 2
    """Factor on attention scores."""
