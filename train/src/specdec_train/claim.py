"""A run's folder: one recipe at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def claim(folder: Path, recipe: dict[str, Any], *, resume: bool) -> None:
    """Make `folder` this recipe's: refuse to resume another's run, clear what a fresh run must not see.

    Args:
        folder: folder of checkpoints; made if missing.
        recipe: the recipe as plain data.
        resume: whether the run goes on from what the folder holds.

    Raises:
        ValueError: `resume`, and the folder holds a run of another recipe.
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
