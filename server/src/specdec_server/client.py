"""Identifies the client of a request."""

from __future__ import annotations

import hashlib

from starlette.datastructures import Headers
from starlette.types import Scope


def client_of(scope: Scope, *, by_key: bool) -> str:
    """Return a name for the client of a request; it does not reveal the client's key.

    Args:
        scope: of the request.
        by_key: whether clients have their own keys; otherwise they are distinguished by address.
    """
    if by_key:
        key = Headers(scope=scope).get("authorization", "").partition(" ")[2].strip()
        if key:
            return f"key-{hashlib.sha256(key.encode('latin-1')).hexdigest()[:16]}"
    address = scope.get("client")
    return str(address[0]) if address else "unknown"
