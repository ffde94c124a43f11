"""Trained models, found by looking."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec_zoo import smollm2
from specdec_zoo.unpacking import unpacked

_ROOT = Path(__file__).with_name("artefacts")


def names() -> list[str]:
    """Names of the artefacts that are there, sorted: each is a folder of a model's files, or of a target's responses."""
    return sorted(entry.name for entry in _ROOT.glob("[!.]*") if any(entry.glob("*")))


def path(name: str = "target") -> Path:
    """Folder of an artefact, loadable by whatever loads the published format; for `smollm2` the GGUF file of its package.

    Args:
        name: `target`, the name of a draft artefact, or `smollm2`.

    Raises:
        ValueError: there is no such artefact; the message names those there are.
        FileNotFoundError: the package of `smollm2` is not installed; the message has the line that installs it.
    """
    if name == smollm2.NAME:
        return smollm2.gguf()
    known = names()
    if name not in known:
        raise ValueError(
            f"the zoo has no artefact {name!r}; it has: {', '.join(known) or 'none (run `make zoo`)'}"
        )
    return unpacked(_ROOT / name)


def draft(name: str, target: Mapping[str, Any]) -> Path:
    """Folder of the draft artefact that was made for a target.

    Args:
        name: of the artefact, such as `eagle3`; those for SmolLM2 are in folders `smollm2_<name>`.
        target: the target's `config.json`; every target but SmolLM2-135M is taken for the zoo's small one.

    Raises:
        ValueError: there is none for this target; the message names those there are.
    """
    own = f"{smollm2.NAME}_"
    if not smollm2.is_smollm2(target):
        return path(name)
    known = names()
    if own + name in known:
        return unpacked(_ROOT / (own + name))
    made = [entry for entry in known if entry.startswith(own)]
    raise ValueError(
        f"the zoo has no artefact {own + name!r}, which the target {smollm2.NAME} needs; for that target it has: "
        f"{', '.join(made) or 'none'}"
    )
