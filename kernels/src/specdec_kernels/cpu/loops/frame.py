"""A model as arrays: the sizes, flags, factors and addresses that compiled passes need."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Entry(IntEnum):
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
    NUM_IDS = 10
    """Number of rows of the embedding."""
    READS_FEATURES = 11
    IS_FEATURE_FIRST = 12
    """The feature comes before the embedding in their concatenation."""
    IS_NORMED_RESIDUAL = 13
    """Without a join, the residual stream is the normalized feature."""
    IS_NORMED_STATE = 14
    """The state that a pass returns is the final norm's output rather than its input."""
    IS_ROUNDED = 15
    """Inputs of products with weights are rounded to bfloat16 first, as in a model that runs in bfloat16."""
    GROUP = 16
    """Weights of 4 bits that share a scale; for weights in blocks the digits of rows, see `split_rows`; else 0."""
    NUM_POSITIONS = 17
    """Positions that the tables of rotary factors cover."""
    EMBEDDING_FORM = 18
    """What the embedding holds: see `EmbeddingForm`."""
    WEIGH_LAYERS = 19
    """Address of the function that multiplies with the weights of the layers, and of `JOIN`; see `weigh`."""
    WEIGH_HEAD = 20
    """The same for the head."""
    ATTEND = 21
    """Address of the function that reads and writes the cache; see `store_and_attend`."""
    ARE_NORMS_CENTRED = 22
    """Norms over the hidden size subtract the mean first."""
    SCORE = 23
    """Address of the function for the scores of one head of a request; see `head_functions`."""
    BLEND = 24
    """The same for its output."""
    TEAM = 25
    """Address of the team whose threads run products and attention; see `make_team`."""


class EmbeddingForm(IntEnum):
    """What the numbers of an embedding are."""

    FLOATS = 0
    HALVES = 1
    """The bits of bfloat16."""
    BLOCKS = 2
    """Its address is that of a table of segments, see `product_of_blocks`, which has one."""


class Number(IntEnum):
    """Entries of the array of floating-point numbers that accompanies a frame."""

    EPSILON = 0
    """Epsilon of norms over the hidden size."""
    HEAD_EPSILON = 1
    """Epsilon of norms of queries, keys and values."""
    EMBED_SCALE = 2
    """Factor on embeddings."""
    LOGITS_SCALE = 3
    """Factor on logits."""
    LOGITS_SOFTCAP = 4
    """Logits are `c * tanh(logit / c)`; 0 if they are not."""


class Column(IntEnum):
    """Columns of the table of layers: addresses (0 where a layer has none), then sizes and flags."""

    QKV = 0
    OUT = 1
    GATE_UP = 2
    DOWN = 3
    QKV_BIAS = 4
    OUT_BIAS = 5
    GATE_UP_BIAS = 6
    DOWN_BIAS = 7
    ATTENDED_NORM = 8
    """Norm of attention's output."""
    MLP_NORM = 9
    """Norm of the feed-forward layer's input; 0 if it is not normalized."""
    MLP_OUT_NORM = 10
    """Norm of the feed-forward layer's output."""
    NEXT_NORM = 11
    """Norm of the next layer's input; for the last layer the final norm, if there is one."""
    HEAD_NORMS = 12
    """`[n, D]` norms of query heads and key heads, and for n = 3 of value heads."""
    JOINT_NORMS = 13
    """`[(H + Hkv) D]` norm of all queries, then norm of all keys."""
    KEYS = 14
    VALUES = 15
    COS = 16
    SIN = 17
    WINDOW = 18
    NUM_HEADS = 19
    NUM_KV_HEADS = 20
    HEAD_DIM = 21
    INTERMEDIATE = 22
    ROTARY_WIDTH = 23
    """Dimensions of a head that are rotated; 0 if positions are not encoded."""
    IS_INTERLEAVED = 24
    """Neighbours are rotated together."""
    NUM_HEAD_NORMS = 25
    ARE_KEYS_VALUES = 26
    """There are no projected values: keys before their norm are the values."""
    IS_GELU = 27
    """The activation is GELU by tanh rather than SiLU."""
    NUM_FIRST = 28
    """First positions that are seen beside the window."""
    IS_PARALLEL = 29
    """The feed-forward layer reads what attention reads."""


class Factor(IntEnum):
    """Columns of the table of layers' floating-point numbers."""

    SCALING = 0
    """Factor on attention scores."""
    SOFTCAP = 1
    """Scores are `c * tanh(score / c)`; 0 if they are not."""
    RESIDUAL_SCALE = 2
    """Factor on what is added to the residual stream."""
    OUTPUT_SCALE = 3
    """Factor on the layer's output."""


class Tables(NamedTuple):
    """A model as compiled passes read it."""

    layers: npt.NDArray[np.int64]
    """`[L, len(Column)]`."""
    factors: npt.NDArray[np.float64]
    """`[L, len(Factor)]`."""
    frame: npt.NDArray[np.int64]
    """`[len(Entry)]`."""
    numbers: npt.NDArray[np.float64]
    """`[len(Number)]`."""
