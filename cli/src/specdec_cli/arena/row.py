"""The raw rows of a submission: a measured answer, and an answer of the stamp."""

from __future__ import annotations

import hashlib
import json
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Step = tuple[float, int] | tuple[float, int, int, int]
"""Seconds since the request, tokens that came; here also how many were drafted, and how many of these accepted."""
Symbol = int | str


def sha256_of(value: object) -> str:
    """Return the hash of a prompt: token ids, messages or text, as JSON."""
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()


class Record(BaseModel):
    """A line or file of a submission; unknown and missing fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Row(Record):
    """One answer: what was asked, and when each of its tokens came."""

    contestant: str
    batch_size: int = Field(ge=1)
    group: int = Field(ge=0)
    """The contestants take turns, group by group of questions."""
    question: int = Field(ge=0)
    """Its line in the suite, from 0."""
    turn: int = Field(ge=0)
    category: str
    prompt_sha256: str
    """Of the token ids, or of the messages that a server was sent."""
    start: float = Field(ge=0)
    """Seconds from the beginning of the run to the request."""
    steps: list[Step]
    """What came together: a step here, an event of a server's stream."""
    tokens: list[int] | None = None
    text: str | None = None
    """Where a server tells no ids."""
    finish: str
    drafting: tuple[int | None, int, int] | None = None
    """Drafts, drafted and accepted tokens, where a server tells them."""
    num_steps: int | None = Field(default=None, ge=1)
    """Steps of the engine, where a server tells them: an event may have the tokens of several."""

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        times = [step[0] for step in self.steps]
        if any(later < earlier for earlier, later in zip([0.0, *times], times, strict=False)):
            raise ValueError("the times of its steps go back")
        if times and not times[-1]:
            raise ValueError("its steps took no time")
        if any(step[1] < 0 for step in self.steps):
            raise ValueError("a step has fewer than no tokens")
        if self.tokens is not None and sum(step[1] for step in self.steps) != len(self.tokens):
            raise ValueError("its steps have not as many tokens as its text")
        for _, emitted, drafted, accepted in (step for step in self.steps if len(step) == 4):
            if not 0 <= accepted <= drafted or not accepted <= emitted <= accepted + 1:
                raise ValueError(
                    f"a step of {drafted} drafted and {accepted} accepted tokens cannot give {emitted}"
                )
        return self

    @property
    def num_tokens(self) -> int:
        """Number of generated tokens."""
        return sum(step[1] for step in self.steps)

    @property
    def end(self) -> float:
        """Seconds from the beginning of the run to the last token."""
        return self.start + (self.steps[-1][0] if self.steps else 0.0)


class StampRow(Record):
    """Answers to one prompt of the stamp: one at temperature 0, many above."""

    contestant: str
    prompt: int = Field(ge=0)
    prompt_sha256: str
    temperature: float = Field(ge=0)
    answers: list[list[Symbol]]
    """Ids, or the texts of tokens; behind the last one `END`, if the text ended by itself."""
    places: list[dict[str, float]] | None = None
    """Log probabilities of the most probable tokens at each position, of plain decoding at temperature 0."""
    drafted: int | None = None
    """Drafted tokens; those of a server, which counts them over all prompts, are in its first row."""
