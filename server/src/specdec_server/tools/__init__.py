"""Tool calls: options of requests, and parsers that find calls in a model's text."""

from specdec_server.tools.events import CallArguments, CallStart, Event, Reasoning, Text
from specdec_server.tools.parser import ToolParser
from specdec_server.tools.syntax import CallSyntax
from specdec_server.tools.tool import Tool

__all__ = ["CallArguments", "CallStart", "CallSyntax", "Event", "Reasoning", "Text", "Tool", "ToolParser"]
