"""What compiled passes need to know of a model: sizes, flags and addresses, as one array of integers."""

from __future__ import annotations

from enum import IntEnum


class Part(IntEnum):
    """Entries of a frame. Addresses are 0 where a model has no such part; flags are 0 or 1."""

    EMBEDDING = 0
    HEAD = 1
    HEAD_BIAS = 2
    FIRST_NORM = 3
    """Norm of the first layer's input; none: the input is taken as it is."""
    JOIN = 4
    """Of heads: the map `[H, 2 H]` from an embedding and a feature to the first layer's input. None: the first layer itself
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
    """Rows of the embedding."""
    TAKES_FEATURES = 15
    IS_FEATURE_FIRST = 16
    """The feature comes before the embedding where both are joined."""
    IS_NORMED_RESIDUAL = 17
    """Without a join: the residual stream is the normed feature."""
    IS_NORMED_STATE = 18
    """The state a pass returns is the final norm's output, not its input."""
    IS_ROUNDED = 19
    """What is multiplied with weights is rounded to bfloat16 first, as a model in bfloat16 does."""


class Number(IntEnum):
    """Entries of the floating-point numbers beside a frame."""

    EPSILON = 0
    """Of norms over the hidden size."""
    HEAD_EPSILON = 1
    """Of query and key norms."""
    SCALING = 2
    """Factor on attention scores."""
