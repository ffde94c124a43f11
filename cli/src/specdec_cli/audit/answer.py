"""One sample of a completion, parsed from the response formats of several servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Token = int | str
"""A token id if the server returns ids, else the token's text."""
END = "<end>"
"""The symbol at the end of a text."""


@dataclass(frozen=True)
class TokenLogprobs:
    """Log probabilities of one generated token.

    Log probabilities are keyed by the tokens' text.
    """

    text: str
    logprob: float
    top: Mapping[str, float]
    """Log probabilities of the most probable tokens, including the generated one."""


@dataclass(frozen=True)
class Answer:
    """One sample.

    `tokens` is None if the server returns neither ids nor tokens; `places` is None if it returns no log probabilities.
    """

    text: str
    tokens: tuple[Token, ...] | None
    places: tuple[TokenLogprobs, ...] | None
    has_ended: bool
    """Whether the text ended by itself, not at the token limit."""

    @property
    def symbols(self) -> tuple[Token, ...]:
        """The tokens, or the characters if there are no tokens, followed by `END` if the text ended."""
        shown: Sequence[Token] = self.text if self.tokens is None else self.tokens
        return (*shown, END) if self.has_ended else tuple(shown)

    def text_at(self, place: int) -> str:
        """Return the text of the symbol at a position; `END` after the last one."""
        symbols = self.symbols
        if place >= len(symbols) or symbols[place] == END:
            return END
        if self.places is not None and place < len(self.places):
            return self.places[place].text
        return str(symbols[place])


def read_choice(choice: Mapping[str, Any]) -> Answer:
    """Parse a choice of a completion.

    Log probabilities may have the format of completions or that of chats, which llama.cpp uses.

    Raises:
        KeyError, TypeError, ValueError: if the choice has any other format.
    """
    places = _logprobs(choice.get("logprobs"))
    ids = choice.get("token_ids")
    tokens: tuple[Token, ...] | None = None
    if isinstance(ids, list) and (places is None or len(ids) == len(places)):
        tokens = tuple(int(token) for token in ids)
    elif places is not None:
        tokens = tuple(place.text for place in places)
    return Answer(str(choice["text"]), tokens, places, choice.get("finish_reason") == "stop")


def _logprobs(given: Mapping[str, Any] | None) -> tuple[TokenLogprobs, ...] | None:
    if not given:
        return None
    if isinstance(given.get("content"), list):
        return tuple(
            _token_logprobs(
                entry["token"],
                entry["logprob"],
                {top["token"]: top["logprob"] for top in entry.get("top_logprobs") or ()},
            )
            for entry in given["content"]
        )
    tokens, values = given["tokens"], given["token_logprobs"]
    tops = given.get("top_logprobs") or [None] * len(tokens)
    return tuple(
        _token_logprobs(token, value, top or {})
        for token, value, top in zip(tokens, values, tops, strict=True)
    )


def _token_logprobs(token: str, logprob: float, top: Mapping[str, float]) -> TokenLogprobs:
    return TokenLogprobs(
        str(token), float(logprob), {str(token): float(logprob), **{str(t): float(v) for t, v in top.items()}}
    )
