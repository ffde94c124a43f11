"""Warnings of commands that make many engines."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def notices_once() -> Iterator[None]:
    """Log each specdec warning once, for commands that create many engines."""
    said: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_first = message not in said
        said.add(message)
        return is_first

    logger = logging.getLogger("specdec")
    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)
