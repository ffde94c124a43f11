"""The model hub: whether it can be reached."""

from __future__ import annotations

import os
import re
import socket
from functools import cache
from urllib.parse import urlsplit

HUB_ID = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*")
CONNECT_SECONDS = 5.0
"""Timeout for connecting to the hub."""
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


@cache
def is_hub_reachable() -> bool:
    """Return whether the hub can be reached; tried once per process.

    Without this check the client retries for half a minute for every requested file. Behind a proxy no connection is tried,
    because the proxy may reach hosts that this machine cannot.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(name) or os.environ.get(name.lower()) for name in _PROXIES):
        return True
    address = urlsplit(constants.ENDPOINT)
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((address.hostname or "", port), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
