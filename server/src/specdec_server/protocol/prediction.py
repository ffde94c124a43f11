"""OpenAI's `prediction`."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import MaxLen
from pydantic import BaseModel, ConfigDict

from specdec_server.protocol.checks import ListOf


class TextPart(BaseModel):
    """A part of the predicted text."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: str


class PredictedContent(BaseModel):
    """The output that a client expects, for example a file before an edit."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["content"]
    content: str | Annotated[ListOf[TextPart], MaxLen(1024)]

    @property
    def text(self) -> str:
        """The content as one text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
