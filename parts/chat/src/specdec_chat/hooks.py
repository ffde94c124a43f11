"""Registers the package's part of specdec."""

from __future__ import annotations

from specdec import hookimpl
from specdec.interfaces import Part
from specdec_chat.conversation import TokenizerTemplates


@hookimpl
def specdec_register_parts() -> type[Part]:
    """Return the part `chat_templates`."""
    return TokenizerTemplates
