"""Keeps libraries from drawing progress bars of their own between a command's output."""

from __future__ import annotations

import sys


def hush_libraries() -> None:
    """Turn off the bar of transformers that counts weights, and in a pipe also those of downloads."""
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging

    logging.disable_progress_bar()
    if not sys.stderr.isatty():
        disable_progress_bars()
