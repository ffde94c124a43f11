"""The record of what is shipped and how it was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("manifest.json")


def manifest() -> dict[str, Any]:
    """The manifest, read afresh: `artefacts` (by name: files, recipe, training, held-out loss), `prompts`, `corpus`.

    Raises:
        FileNotFoundError: the zoo has not been built in this checkout.
    """
    if not _FILE.exists():
        raise FileNotFoundError(f"{_FILE} is missing; build the zoo with `make zoo`")
    content: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return content
