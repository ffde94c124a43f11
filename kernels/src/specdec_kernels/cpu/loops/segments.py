"""The segments of a small pass in the form that compiled code reads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_runtime.interfaces import PackedBatch

MAX_ROWS = 32
"""Maximum rows of a segment in compiled attention. Passes with more rows of a request are cut into pieces of such segments, or
run eagerly where eager matrix products are faster."""
Table = npt.NDArray[np.int64]
"""`[5, S]` of each segment of a pass: first row; number of rows; slot of position 0; rows in the cache before the pass; number
of these, the last ones, that are branches not visible to every new row, or -1 for a chain."""
Visible = npt.NDArray[np.bool_]
"""`[T, W]` which of those branches, and then which new rows of its request, each row of a tree sees. Empty if all segments are
chains."""
MAX_PASS_ROWS = 128
"""Maximum rows of a pass that is run whole; longer passes are cut into pieces, or run eagerly."""


def is_short(batch: PackedBatch) -> bool:
    """Return whether no request has more rows than compiled attention takes."""
    return all(segment.num_rows <= MAX_ROWS for segment in batch.segments)


def segment_arrays(batch: PackedBatch) -> tuple[Table, Visible]:
    """Return the segments of a pass as arrays, made once per pass."""
    segments = batch.segments
    visible = np.empty((0, 0), np.bool_)
    if any(segment.tree_mask is not None for segment in segments):
        width = max(s.num_branched + s.num_rows for s in segments)
        visible = np.zeros((batch.token_ids.shape[0], width), np.bool_)
        for s in segments:
            if s.tree_mask is not None:
                visible[s.row : s.row + s.num_rows, : s.tree_mask.shape[1]] = s.tree_mask.numpy()
    table = np.array(
        [
            (s.row, s.num_rows, s.first_slot, s.num_cached, -1 if s.tree_mask is None else s.num_branched)
            for s in segments
        ]
    )
    return table.T.copy(), visible
