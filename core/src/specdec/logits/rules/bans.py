"""Rules that forbid ids: a whitelist, end ids before `min_tokens`, bad words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from specdec.interfaces.row_block import RowBlock, node_depths
from specdec.interfaces.sent import sent
from specdec.logits.rules.edits import Edits, Points

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class AllowedIdsRule:
    """Forbids all ids except the allowed ones.

    Args:
        allowed: ids that may be chosen.
    """

    def __init__(self, allowed: Sequence[int]) -> None:
        self.ids = np.unique(np.fromiter(allowed, np.int64, len(allowed)))
        # allocated in the first step, not while the request waits
        self._is_forbidden: torch.Tensor | None = None

    def add_to(self, edits: Edits, block: RowBlock) -> None:
        """Ban the ids in all rows."""
        edits.allowed = self

    def is_forbidden(self, like: torch.Tensor) -> torch.Tensor:
        """Return `[V]` bool: all other ids, on the device of `like [R, V]`."""
        if self._is_forbidden is None:
            is_forbidden = torch.ones(like.shape[-1], dtype=torch.bool)
            is_forbidden[torch.from_numpy(self.ids)] = False
            self._is_forbidden = sent(is_forbidden, like.device)
        return self._is_forbidden


class MinTokensRule:
    """Forbids the ids that end a sample while it is too short.

    Args:
        min_tokens: minimum number of output tokens.
        end_ids: end-of-text and stop ids.
    """

    def __init__(self, min_tokens: int, end_ids: Sequence[int]) -> None:
        self._min_tokens = min_tokens
        self._end_ids = np.array(sorted(end_ids), np.int64)

    def add_to(self, edits: Edits, block: RowBlock) -> None:
        """Ban the ids in rows with too few output tokens; others are unchanged."""
        missing = self._min_tokens - len(block.output_token_ids)
        if missing > 0:
            if block.device_nodes is not None and block.device_nodes.is_tree:
                block = block.read()
            depths = [0, *node_depths(block.num_nodes, block.parents)]
            rows = np.array([row for row, depth in enumerate(depths) if depth < missing])
            ids = np.tile(self._end_ids, len(rows))
            edits.bans.append(Points(rows.repeat(len(self._end_ids)), ids))


class BadWordsRule:
    """Forbids the last token of a word wherever the output ends with the word's other tokens.

    Args:
        words: token ids of each word, none empty.
    """

    def __init__(self, words: Sequence[Sequence[int]]) -> None:
        self._last_ids: dict[tuple[int, ...], list[int]] = {}
        """For each beginning of a word the ids that complete it."""
        for *start, last in words:
            self._last_ids.setdefault(tuple(start), []).append(last)
        self._lengths = sorted({len(start) for start in self._last_ids})

    def add_to(self, edits: Edits, block: RowBlock) -> None:
        """Ban the last tokens of words whose beginning ends a row's text."""
        output = block.output_token_ids
        tail = tuple(output[max(0, len(output) - self._lengths[-1]) :].tolist())
        indices = []
        for row, path in enumerate(block.paths()):
            text = tail + path
            prefixes = [text[len(text) - length :] for length in self._lengths if length <= len(text)]
            indices += [(row, last) for start in prefixes for last in self._last_ids.get(start, ())]
        if indices:
            edits.bans.append(Points(*np.array(indices).T))


@lru_cache(16)
def bad_words_rule(words: tuple[str, ...], tokenizer: PreTrainedTokenizerBase) -> BadWordsRule:
    """Return the rule for words; the samples of a request share it."""
    return BadWordsRule(bad_word_ids(words, tokenizer))


def bad_word_ids(words: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Return the token ids of words at the start of a text and, if they differ, after a space.

    As in vLLM, the form after a space is included if it has the same number of tokens and a different first token.
    """
    found: list[list[int]] = []
    for word in words:
        plain = tokenizer.encode(word.lstrip(), add_special_tokens=False)
        spaced = tokenizer.encode(" " + word.lstrip(), add_special_tokens=False)
        found.append(plain)
        if spaced[0] != plain[0] and len(spaced) == len(plain):
            found.append(spaced)
    return found
