"""Log probabilities in OpenAI's two formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec import Logprob
from specdec_server.output_delta import Entry

_LOWEST = -9999.0
"""vLLM's replacement for minus infinity."""


class CompletionLogprobs:
    """The format of completions; text offsets continue from piece to piece.

    Args:
        num_top: number of most probable tokens listed in addition to the chosen one.
        as_ids: whether tokens are called `token_id:N`, as vLLM does on request.
    """

    def __init__(self, num_top: int, *, as_ids: bool = False) -> None:
        self._num_top, self._as_ids, self._offset = num_top, as_ids, 0

    def of_prompt(
        self, first: str, token_ids: Sequence[int], entries: Sequence[Entry | None], text: str
    ) -> dict[str, Any]:
        """Return the object for an echoed prompt.

        Args:
            first: the first token's text.
            token_ids: `[N]`.
            entries: `[N]`, None for the first, which has no log probability.
            text: the prompt; special tokens that the tokenizer added are not in it.
        """
        rest = [(token, entry) for token, entry in zip(token_ids, entries, strict=True) if entry is not None]
        self._offset = len(first) if text.startswith(first) else 0
        offsets = []
        for token, entry in rest:
            offsets.append(min(self._offset, len(text)))
            name = entry[token].decoded_token or ""
            is_shown = entry[token].token_bytes or text.startswith(name, self._offset)
            self._offset += len(name) if is_shown else 0
        listed = self._listed([token for token, _ in rest], [entry for _, entry in rest], offsets)
        self._offset = len(text)
        name = _name_of(token_ids[0]) if self._as_ids else first
        head = {"tokens": name, "token_logprobs": None, "top_logprobs": None, "text_offset": 0}
        return {key: [head[key], *values] for key, values in listed.items()}

    def __call__(
        self, token_ids: Sequence[int], entries: Sequence[Entry], end: int | None = None
    ) -> dict[str, Any]:
        """Return the object for generated tokens.

        Args:
            token_ids: `[N]`.
            entries: `[N]`.
            end: length of the text if it ends with these tokens; those past a stop string have their offset there.
        """
        offsets = []
        for token, entry in zip(token_ids, entries, strict=True):
            offsets.append(self._offset if end is None else min(self._offset, end))
            self._offset += len(entry[token].decoded_token or "") if entry[token].token_bytes else 0
        return self._listed(token_ids, entries, offsets)

    def _listed(
        self, token_ids: Sequence[int], entries: Sequence[Entry], offsets: list[int]
    ) -> dict[str, Any]:
        chosen = [entry[token] for token, entry in zip(token_ids, entries, strict=True)]
        return {
            "tokens": [
                _name_of(token) if self._as_ids else found.decoded_token or ""
                for token, found in zip(token_ids, chosen, strict=True)
            ],
            "token_logprobs": [_number(found) for found in chosen],
            "top_logprobs": [
                self._top(token, entry) for token, entry in zip(token_ids, entries, strict=True)
            ],
            "text_offset": offsets,
        }

    def _top(self, token: int, entry: Entry) -> dict[str, float]:
        """Return log probabilities by text, the chosen token's first; of several with equal text, all but one by id."""
        top: dict[str, float] = {}
        for token_id, found in entry.items():
            if found.rank <= self._num_top or token_id == token:
                text = found.decoded_token or ""
                top[_name_of(token_id) if self._as_ids or text in top else text] = _number(found)
        return top


def chat_logprobs(
    token_ids: Sequence[int], entries: Sequence[Entry], num_top: int, *, as_ids: bool = False
) -> dict[str, Any]:
    """Return the format of chat completions.

    Args:
        token_ids: `[N]`.
        entries: `[N]`.
        num_top: number of most probable tokens listed.
        as_ids: whether tokens are called `token_id:N`.
    """
    content = []
    for token_id, entry in zip(token_ids, entries, strict=True):
        listed = {other: _token(found) for other, found in entry.items()}
        if as_ids:
            listed = {other: {**token, "token": _name_of(other)} for other, token in listed.items()}
        ranked = sorted(entry, key=lambda other: entry[other].rank)
        top = [listed[other] for other in ranked if entry[other].rank <= num_top]
        content.append({**listed[token_id], "top_logprobs": top})
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


def _name_of(token_id: int) -> str:
    return f"token_id:{token_id}"


def _number(found: Logprob) -> float:
    """Return a log probability for JSON; minus infinity, of forbidden tokens, becomes `_LOWEST`."""
    return max(found.logprob, _LOWEST)


def _token(found: Logprob) -> dict[str, Any]:
    return {
        "token": found.decoded_token or "",
        "logprob": _number(found),
        "bytes": list(found.token_bytes or b""),
    }
