"""Parses JSON from clients."""

from __future__ import annotations

import re
from threading import Lock
from typing import Any

from pydantic_core import from_json

from specdec_server.errors import ApiError

MAX_ITEMS = 250_000
"""Maximum items of a body: parsing one holds the interpreter's lock, which keeps every other request waiting."""
_ONE_AT_A_TIME = Lock()
"""The event loop waits for one body at most, then has its turn."""
_PLACE = re.compile(r"(.*) at line (\d+) column (\d+)")


def parsed(raw: bytes) -> Any:
    """Return the value of a JSON text, which may be nested about 200 levels deep.

    Raises:
        ApiError: if it is not JSON or has too many items.
    """
    num_items = sum(map(raw.count, (b",", b":", b"[", b"{")))
    if num_items > MAX_ITEMS:
        raise ApiError(
            f"the body has {num_items} commas, colons and opening brackets, and the server takes {MAX_ITEMS}: send less at "
            "once",
            413,
        )
    try:
        with _ONE_AT_A_TIME:
            return from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        message = _PLACE.sub(r"at line \2, column \3: \1", str(error))
        hint = " (an escape is cut off, or an unpaired surrogate)" if "hex escape" in message else ""
        raise ApiError(f"the body is not JSON: {message}{hint}") from None
