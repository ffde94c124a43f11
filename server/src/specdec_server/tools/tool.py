"""A function that a model may call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a tool that declares no parameters."""


@dataclass(frozen=True)
class Tool:
    """One function of a request's `tools`."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: dict(NO_PARAMETERS))
    """JSON schema of the arguments."""
    is_strict: bool = False
    """Whether arguments must match the schema even if the model may also answer without a call."""

    def as_template(self) -> dict[str, Any]:
        """Return the tool in the format that chat templates expect."""
        function: dict[str, Any] = {"name": self.name, "parameters": self.parameters}
        if self.description:
            function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}
