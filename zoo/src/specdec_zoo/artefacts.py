"""Folders of trained models, found by looking."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).with_name("artefacts")


def names() -> list[str]:
    """Names of the artefacts that are there, sorted: each is a folder with a `config.json`."""
    return sorted(file.parent.name for file in _ROOT.glob("[!.]*/config.json"))


def path(name: str = "target") -> Path:
    """Folder of an artefact, loadable by whatever loads the published format.

    Args:
        name: `target`, or the name of a draft artefact.

    Raises:
        ValueError: there is no such artefact; the message names those there are.
    """
    known = names()
    if name not in known:
        raise ValueError(
            f"the zoo has no artefact {name!r}; it has: {', '.join(known) or 'none (run `make zoo`)'}"
        )
    return _ROOT / name
