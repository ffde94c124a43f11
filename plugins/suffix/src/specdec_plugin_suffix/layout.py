"""How the arrays of a suffix tree are laid out; `kernels` says what is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
int64: Any = np.int64
"""Arguments that are numbers have this type, or numba would compile functions for several."""

COUNT, PARENT, START, LENGTH, TOKEN, PLACE, BLOCK, NUM_CHILDREN, NUM_NODE_FIELDS = range(9)
"""Columns of `nodes`. A label begins at `text[START]`, with TOKEN. PLACE is a node's place among its parent's children, BLOCK
where its own begin in `blocks`, or -1. A free node has the next free one as its PARENT, and no count."""
ROOT = 0
"""Also an empty entry of the table, because the root is nobody's child. Its own children have no block."""

NUM_NODES, NODES_END, FREE_NODE, BLOCKS_END = range(4)
"""Places of `state`: nodes in use without the root; the end of the used part of `nodes`; a free node; the same of `blocks`."""
TEXT_BEGIN, TEXT_SIZE, NUM_TOKENS = range(4, 7)
"""Places of `state`: where in `text` the oldest token is; the number of all tokens; the number of those of the growing text."""
NUM_GROWN, LACKING = range(7, 9)
"""Places of `state`: how many of the last words have the token that is being appended; which array is too small for more."""
FREE_BLOCKS, WORDS = 9, 9 + 32
"""Where in `state` there is a free block of each size, or -1, and the node at which each of the last words ends. A word's place
is its start modulo the depth."""

NOTHING, NODES, TABLE, BLOCKS, TEXT = range(5)
"""Values of LACKING."""
SMALLEST_BLOCK = 4
"""A block's first entry is its size, a power of two."""
