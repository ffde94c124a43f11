"""The interface of reasoning parsers."""

from __future__ import annotations

from typing import Any

from specdec_server.tools.parser import OutputParser


class ReasoningParser(OutputParser):
    """Gives `Reasoning` and `Text`. Registered under the entry-point group `specdec.reasoning_parsers`.

    Args:
        prompt: as the chat template wrote it; it may have begun or ended the reasoning itself.
    """

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    def prefix(self) -> dict[str, Any] | None:
        """Return the reasoning as a format of xgrammar's structural tags, so that grammars bind the answer only; None if
        there is none to come."""
        return None
