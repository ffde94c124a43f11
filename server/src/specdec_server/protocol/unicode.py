"""Text that is no text."""

from __future__ import annotations

import json
from typing import Any


def check_unicode(body: Any) -> Any:
    """Return a body as it is.

    Raises:
        ValueError: if it holds half of a pair of surrogates, which JSON can spell and no encoding has.
    """
    try:
        json.dumps(body, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"Unicode text, and {error.object[error.start]!r} is half a character") from None
    return body
