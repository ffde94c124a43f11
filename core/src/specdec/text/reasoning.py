"""Reasoning between two markers: where it begins and ends, how long it is, and what ends it at a budget."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from specdec.config_model import ConfigModel
from specdec.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Tokens = tuple[int, ...]


class ReasoningConfig(ConfigModel):
    """How a model marks its reasoning, with vLLM's names.

    Raises:
        ConfigError: naming the key that is wrong.
    """

    _error_prefix = "LLM: reasoning_config"

    reasoning_start_str: str = Field(min_length=1, description="What begins reasoning, such as `<think>`.")
    reasoning_end_str: str = Field(
        min_length=1,
        description="What a budget that is used up writes: the end marker, and before it, if wanted, a sentence.",
    )
    reasoning_close_str: str = Field(
        default="",
        description="The end marker alone, with which `reasoning_end_str` must end; by default `reasoning_end_str`.",
    )
    is_always_open: bool = Field(
        default=False,
        description="Whether a text reasons from its start where the prompt does not decide it.",
    )

    @model_validator(mode="after")
    def _ends_with_its_marker(self) -> ReasoningConfig:
        if not self.reasoning_end_str.endswith(self.reasoning_close_str):
            raise ValueError(
                f"reasoning_end_str {self.reasoning_end_str!r} must end with reasoning_close_str {self.reasoning_close_str!r}"
            )
        return self


@dataclass(frozen=True)
class ReasoningMarkers:
    """The markers as token ids, none of them empty."""

    start: Tokens
    close: Tokens
    forced: Tokens
    """What a budget writes; it ends with `close`."""
    is_always_open: bool = False

    @classmethod
    def of(cls, given: object, tokenizer: PreTrainedTokenizerBase | None) -> ReasoningMarkers | None:
        """Return the markers of a configuration, a mapping or JSON text, in a tokenizer's ids; None for none.

        Raises:
            ConfigError: if it is no `ReasoningConfig`, or there is no tokenizer.
        """
        if given is None:
            return None
        keys = given
        if isinstance(given, str):
            with suppress(ValueError):
                keys = json.loads(given)
        if not isinstance(keys, Mapping):
            raise ConfigError(f"LLM: reasoning_config={given!r} must be a mapping, or JSON text of one")
        config = ReasoningConfig(**keys)
        if tokenizer is None:
            raise ConfigError("LLM: reasoning_config needs a tokenizer; pass tokenizer=")
        marker = config.reasoning_close_str or config.reasoning_end_str
        texts = (config.reasoning_start_str, marker, config.reasoning_end_str.removesuffix(marker))
        start, close, sentence = (
            tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else () for text in texts
        )
        if not start or not close:
            raise ConfigError(f"LLM: reasoning_config: the tokenizer makes no tokens of {texts[not close]!r}")
        return cls(start, close, sentence + close, config.is_always_open)


class _Place(NamedTuple):
    """Where a text is."""

    tail: Tokens
    """Its last tokens, as many as a marker may have."""
    length: int | None
    """Tokens of reasoning since its start marker; None outside."""
    left: Tokens
    """What the budget has still to write."""
    num_tokens: int
    """Tokens of reasoning in the output, without markers."""


class Reasoning:
    """The reasoning of one sample.

    Args:
        markers: of the model.
        budget: most tokens of one stretch of reasoning, those in the prompt included; None for no limit.
        prompt: `[L]` token ids.
    """

    def __init__(
        self, markers: ReasoningMarkers, budget: int | None, prompt: npt.NDArray[np.integer]
    ) -> None:
        self._markers, self._budget = markers, budget
        self._longest = max(len(markers.start), len(markers.close))
        begin = _end_of_last(prompt, markers.start)
        end = _end_of_last(prompt, markers.close)
        is_undecided = markers.is_always_open and len(prompt) - end > (1 if end else -1)
        length = len(prompt) - begin if begin > end else 0 if is_undecided else None
        tail = tuple(prompt[len(prompt) - min(length or 0, self._longest) :].tolist())
        self._committed, self._num_seen = self._at(tail, length, (), 0), 0

    def follow(self, output: Sequence[int]) -> None:
        """Take in the output, of which earlier calls had the first tokens."""
        for token_id in output[self._num_seen :]:
            self._committed = self._next(self._committed, int(token_id))
        self._num_seen = len(output)

    def count(self, output: Sequence[int]) -> int:
        """Take in the output, see `follow`; return its tokens of reasoning, without the markers."""
        self.follow(output)
        return self._committed.num_tokens

    def forced(self) -> Tokens:
        """Return the tokens that must follow the output."""
        return self._committed.left

    def forced_behind(self, nodes: Sequence[int], parents: Sequence[int] | None) -> list[int | None]:
        """Return, for the output and for it and the path to each node, the token that must follow; None for any.

        Args:
            nodes: drafted token ids.
            parents: of each node, -1 for the output; None for a chain.
        """
        places = [self._committed]
        for node, token_id in enumerate(nodes):
            parent = node - 1 if parents is None else parents[node]
            places.append(self._next(places[parent + 1], int(token_id)))
        return [place.left[0] if place.left else None for place in places]

    def _next(self, place: _Place, token_id: int) -> _Place:
        """Return the place behind one more token."""
        markers = self._markers
        tail, length, left, count = place
        tail = (*tail, token_id)[-self._longest :]
        if length is None:
            return self._at(tail, 0 if _ends_with(tail, markers.start) else None, (), count)
        if left and token_id == left[0]:
            left = left[1:]
            is_closed = not left
        else:
            left, is_closed = (), _ends_with(tail, markers.close)
        if is_closed:
            return _Place((), None, (), count - len(markers.close) + 1)
        return self._at(tail, length + 1, left, count + 1)

    def _at(self, tail: Tokens, length: int | None, left: Tokens, count: int) -> _Place:
        """Return a place, with what the budget writes from there."""
        if length is not None and self._budget is not None and length >= self._budget and not left:
            close = self._markers.close
            sizes = range(min(len(close) - 1, length), 0, -1)
            begun = next((size for size in sizes if _ends_with(tail, close[:size])), 0)
            left = close[begun:] if begun else self._markers.forced
        return _Place(tail, length, left, count)


def _ends_with(tail: Tokens, marker: Tokens) -> bool:
    return tail[-len(marker) :] == marker


def _end_of_last(tokens: npt.NDArray[np.integer], marker: Tokens) -> int:
    """Return where the last occurrence of a marker ends; 0 if there is none."""
    for end in np.flatnonzero(tokens == marker[-1])[::-1].tolist():
        if tuple(tokens[max(0, end + 1 - len(marker)) : end + 1].tolist()) == marker:
            return int(end) + 1
    return 0
