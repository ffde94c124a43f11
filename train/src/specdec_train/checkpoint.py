"""Checkpoints of a run: atomic writes, and finding the newest one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

_PREFIX = "step-"


def save_checkpoint(folder: Path, step: int, state: dict[str, Any], *, keep: int = 2) -> Path:
    """Write `state` as the checkpoint of `step` and delete all but the newest `keep`.

    Args:
        folder: folder of the run.
        step: optimizer steps taken so far.
        state: tensors, numbers, strings and containers of them.
        keep: how many checkpoints are kept.

    Returns:
        the file written.

    Raises:
        ValueError: if it cannot be written, for example on a full disk; earlier checkpoints are kept.
    """
    path = folder / f"{_PREFIX}{step:07d}.pt"
    partial = path.with_suffix(".partial")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(state, partial)
        os.replace(partial, path)
    except (OSError, RuntimeError) as error:  # torch's own writer raises RuntimeError
        partial.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ValueError(
            f"{path} cannot be written ({reason}): make room and go on with --resume from the checkpoint before"
        ) from None
    for old in sorted(folder.glob(f"{_PREFIX}*.pt"))[:-keep]:
        old.unlink()
    return path


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint in `folder`, None if there is none."""
    return max(folder.glob(f"{_PREFIX}*.pt"), default=None)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint; only plain data and tensors are accepted."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state
