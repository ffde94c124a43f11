"""Base of parsers for formats that write calls as JSON objects."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_server.tools.call_object import CallObject
from specdec_server.tools.parser import BufferedParser
from specdec_server.tools.tool import Tool


class ObjectParser(BufferedParser):
    """Reads one object after another; an object that is not a call becomes content."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools)
        self._call: CallObject | None = None
        self._raw = ""
        """Text of an object that does not count as a call yet."""

    def _open_call(self, raw: str, *, needs_arguments: bool) -> None:
        """Expect an object.

        Args:
            raw: text already read before it.
            needs_arguments: whether an object without arguments is not a call.
        """
        self._raw, self._call = raw, CallObject(needs_arguments=needs_arguments)

    def _read_call(self, *, is_end: bool) -> CallObject:
        """Continue reading the open object, close it if it ends here, and return it."""
        call = self._call
        assert call is not None
        self._raw += self._take(call.take(self._buffer))
        is_new = call.name is None
        arguments = call.take_arguments()
        if is_new and call.name is not None:
            self._start(call.name)
        self._argue(arguments)
        is_over = call.is_done or call.is_wrong or (is_end and not self._buffer)
        if is_over:
            self._call = None
            if call.name is None:
                self._say(self._raw)
        return call
