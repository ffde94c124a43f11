"""Log probabilities in OpenAI's two formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specdec import Logprob
from specdec_server.piece import Entry

_LOWEST = -9999.0
"""vLLM's replacement for minus infinity."""


class CompletionLogprobs:
    """The format of completions; text offsets continue from piece to piece.

    Args:
        num_top: number of most probable tokens listed in addition to the chosen one.
        decode: returns the text of a token id.
    """

    def __init__(self, num_top: int, decode: Callable[[int], str]) -> None:
        self._num_top, self._decode, self._offset = num_top, decode, 0

    def __call__(self, token_ids: Sequence[int], entries: Sequence[Entry | None]) -> dict[str, Any]:
        """Return the object for tokens; an entry is None if unknown, such as for the first token of a prompt."""
        tokens = [self._decode(token_id) for token_id in token_ids]
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(token)
        known = list(zip(token_ids, entries, strict=True))
        return {
            "tokens": tokens,
            "token_logprobs": [None if entry is None else _number(entry[token]) for token, entry in known],
            "top_logprobs": [None if entry is None else self._top(token, entry) for token, entry in known],
            "text_offset": offsets,
        }

    def _top(self, token: int, entry: Entry) -> dict[str, float]:
        top: dict[str, float] = {}
        for token_id, found in entry.items():
            if found.rank <= self._num_top or token_id == token:
                # The chosen token comes first, then the most probable ones; the first of several with equal text is kept.
                top.setdefault(found.decoded_token or "", _number(found))
        return top


def chat_logprobs(token_ids: Sequence[int], entries: Sequence[Entry], num_top: int) -> dict[str, Any]:
    """Return the format of chat completions.

    Args:
        token_ids: `[N]`.
        entries: `[N]`.
        num_top: number of most probable tokens listed.
    """
    content = []
    for token_id, entry in zip(token_ids, entries, strict=True):
        top = sorted(
            (found for found in entry.values() if found.rank <= num_top), key=lambda found: found.rank
        )
        content.append({**_token(entry[token_id]), "top_logprobs": [_token(found) for found in top]})
    return {"content": content, "refusal": None}


def raw_logprobs(entries: Sequence[Entry | None] | None) -> list[dict[str, Any] | None] | None:
    """Return prompt log probabilities in vLLM's format, keyed by token id."""
    if entries is None:
        return None
    return [
        None
        if entry is None
        else {
            str(i): {"logprob": _number(e), "rank": e.rank, "decoded_token": e.decoded_token}
            for i, e in entry.items()
        }
        for entry in entries
    ]


def _number(found: Logprob) -> float:
    """Return a log probability for JSON; minus infinity, of forbidden tokens, becomes `_LOWEST`."""
    return max(found.logprob, _LOWEST)


def _token(found: Logprob) -> dict[str, Any]:
    text = found.decoded_token or ""
    return {"token": text, "logprob": _number(found), "bytes": list(text.encode())}
