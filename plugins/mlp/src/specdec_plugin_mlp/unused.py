"""Warns about tensors of a checkpoint that no head uses."""

from __future__ import annotations

import logging
from collections.abc import Collection

from specdec_runtime.drafting import HeadCheckpoint

logger = logging.getLogger("specdec")


def warn_of_unused(checkpoint: HeadCheckpoint, used: Collection[str]) -> None:
    """Log the unused tensors of a checkpoint; they are harmless, but may mean that it holds heads of another kind."""
    unused = [name for name in checkpoint.names() if name not in used]
    if unused:
        logger.warning(
            "%s: no head takes %d of its tensors, %s among them", checkpoint.directory, len(unused), unused[0]
        )
