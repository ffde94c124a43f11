"""The reason of a refused request, as the log has it: without what the client wrote."""

from __future__ import annotations

import json
import re

CLIENT_LEFT = "the client left"
_QUOTED = re.compile(r"(?<!\w)(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")")
_NAME = re.compile(r"[\w.\[\]/:-]{1,64}")
"""Names of fields, models and paths, which are not what somebody asked."""
_MOST_CHARACTERS = 240


def logged(message: str) -> str:
    """Return an error message as one quoted word of ASCII, in which quoted text other than names is left out.

    Args:
        message: as the client gets it.
    """
    text = _QUOTED.sub(_without_text, " ".join(message.split()))
    return json.dumps(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}...")


def _without_text(quoted: re.Match[str]) -> str:
    inside = quoted[1] if quoted[1] is not None else quoted[2]
    return quoted[0] if _NAME.fullmatch(inside) else f"{quoted[0][0]}...{quoted[0][0]}"
