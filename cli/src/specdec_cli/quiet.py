"""Suppresses progress bars of libraries."""

from __future__ import annotations

import sys

from specdec.frontend import importing


def quiet_libraries() -> None:
    """Disable the weight-loading bar of transformers, and the download bars if the output is a pipe."""
    with importing():
        from huggingface_hub.utils.tqdm import disable_progress_bars
        from transformers.utils import logging

    logging.disable_progress_bar()
    if not sys.stderr.isatty():
        disable_progress_bars()
