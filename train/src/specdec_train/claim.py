"""Ties a run's folder to one recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def claim(folder: Path, recipe: dict[str, Any], *, resume: bool) -> None:
    """Record `recipe` in `folder`; refuse to resume another recipe's run, clear checkpoints for a fresh run.

    Args:
        folder: folder of checkpoints; created if missing.
        recipe: the recipe as plain data.
        resume: whether to continue the run in the folder.

    Raises:
        ValueError: if `resume` is set and the folder holds a run of another recipe.
    """
    stamp = folder / "recipe.json"
    if resume and stamp.exists():
        held = json.loads(stamp.read_text())
        if held != recipe:
            changed = sorted(key for key in recipe if held.get(key) != recipe[key])
            raise ValueError(
                f"{folder} holds a run of another recipe (different: {changed}); resume with that one, "
                "choose another --work folder, or start afresh without --resume"
            )
    else:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("step-*.pt"):
            old.unlink()
        stamp.write_text(json.dumps(recipe, indent=1) + "\n")
