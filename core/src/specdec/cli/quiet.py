"""Keeps what others say between a command's output short: progress bars of libraries, and notices that come again."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def hush_libraries() -> None:
    """Turn off the bar of transformers that counts weights, and in a pipe also those of downloads."""
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging

    logging.disable_progress_bar()
    if not sys.stderr.isatty():
        disable_progress_bars()


@contextmanager
def notices_once() -> Iterator[None]:
    """Log each warning of specdec once, for a command that makes an engine again and again."""
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
