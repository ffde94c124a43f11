"""The format of Llama 3.1 to 4: `{"name": ..., "parameters": ...}`, with calls separated by semicolons."""

from __future__ import annotations

from typing import ClassVar

from specdec_server.tools.object_parser import ObjectParser
from specdec_server.tools.syntax import CallSyntax

PYTHON_TAG = "<|python_tag|>"
_LIST = "[{"
"""Some models write calls as a list."""


class LlamaJsonParser(ObjectParser):
    """Finds objects with a name and arguments anywhere in the text."""

    needs_special_tokens: ClassVar[bool] = True
    template_marks: ClassVar[tuple[str, ...]] = ("dictionary of argument name and its value",)

    @classmethod
    def syntax(cls, template: str) -> CallSyntax:
        """Return the call syntax."""
        return CallSyntax(before='{"name": "{name}", "parameters": ', behind="}", separator="; ")

    def _step(self, *, is_end: bool) -> bool:
        if self._call is None:
            mark = self._say_until(("{", _LIST, PYTHON_TAG), is_end=is_end)
            if mark is None:
                return False
            if mark == PYTHON_TAG:
                self._take(len(PYTHON_TAG))
                return True
            self._open_call(self._take(len(_LIST) - 1) if mark == _LIST else "", needs_arguments=True)
        self._read_call(is_end=is_end)
        return bool(self._buffer)
