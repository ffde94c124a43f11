"""Suppresses noise between a command's output: progress bars of libraries, and repeated notices."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def hush_libraries() -> None:
    """Disable the weight-loading bar of transformers, and the download bars if the output is a pipe."""
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging

    logging.disable_progress_bar()
    if not sys.stderr.isatty():
        disable_progress_bars()


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
