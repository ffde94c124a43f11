"""Tensors that a checkpoint has and no head takes."""

from __future__ import annotations

import logging
from collections.abc import Collection

from specdec.drafting import HeadCheckpoint

logger = logging.getLogger("specdec")


def tell_unused(checkpoint: HeadCheckpoint, used: Collection[str]) -> None:
    """Log which tensors of a checkpoint are left over; they cost nothing, but may mean that heads of another kind are meant."""
    unused = [name for name in checkpoint.names() if name not in used]
    if unused:
        logger.warning(
            "%s: no head takes %d of its tensors, %s among them", checkpoint.directory, len(unused), unused[0]
        )
