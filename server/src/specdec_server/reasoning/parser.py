"""The interface of reasoning parsers."""

from __future__ import annotations

from typing import Any

from specdec_server.tools.parser import OutputParser


class ReasoningParser(OutputParser):
    """Emits `Reasoning` and `Text` events. Registered under the entry-point group `specdec.reasoning_parsers`.

    Args:
        prompt: as written by the chat template, which may itself have started or ended the reasoning.
    """

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    @classmethod
    def markers(cls) -> dict[str, Any] | None:
        """Return the `reasoning_config` of the format, by which reasoning is counted and limited; None if it has no markers."""
        return None

    def prefix(self) -> dict[str, Any] | None:
        """Return the reasoning as a structural-tag format, or None if no reasoning follows.

        With this prefix, grammars constrain only the answer.
        """
        return None
