"""Rules that forbid ids: a whitelist, end ids before `min_tokens`, bad words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from specdec.interfaces.sent import sent
from specdec.logits.rows import RowBlock


class AllowedIdsRule:
    """Forbids all ids except the allowed ones.

    Args:
        allowed: ids that may be chosen.
    """

    def __init__(self, allowed: Sequence[int]) -> None:
        self._allowed = torch.from_numpy(np.fromiter(allowed, np.int64, len(allowed)))
        # allocated in the first step, not while the request waits
        self._is_forbidden: torch.Tensor | None = None

    def apply(self, logits: torch.Tensor, block: RowBlock) -> torch.Tensor:
        """Return the rows `[num_rows, V]` with all other ids at -inf."""
        if self._is_forbidden is None:
            self._is_forbidden = torch.ones(logits.shape[-1], dtype=torch.bool, device=logits.device)
            self._is_forbidden[self._allowed.to(logits.device)] = False
        return logits.masked_fill(self._is_forbidden, -torch.inf)


class MinTokensRule:
    """Forbids the ids that end a sample while it is too short.

    Args:
        min_tokens: minimum number of output tokens.
        end_ids: end-of-text and stop ids.
        device: where logits live.
    """

    def __init__(self, min_tokens: int, end_ids: Sequence[int], device: torch.device) -> None:
        self._min_tokens = min_tokens
        self._end_ids = torch.tensor(sorted(end_ids), device=device)

    def apply(self, logits: torch.Tensor, block: RowBlock) -> torch.Tensor:
        """Return the rows `[num_rows, V]`; rows with enough output tokens are unchanged."""
        missing = self._min_tokens - len(block.output_token_ids)
        if missing <= 0:
            return logits
        rows = [row for row, path in enumerate(block.paths()) if len(path) < missing]
        out = logits.clone()
        out[sent(torch.tensor(rows), logits.device)[:, None], self._end_ids] = -torch.inf
        return out


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

    def apply(self, logits: torch.Tensor, block: RowBlock) -> torch.Tensor:
        """Return the rows `[num_rows, V]` with the last tokens of begun words at -inf."""
        output = block.output_token_ids
        tail = tuple(output[max(0, len(output) - self._lengths[-1]) :].tolist())
        places = []
        for row, path in enumerate(block.paths()):
            text = tail + path
            begun = [text[len(text) - length :] for length in self._lengths if length <= len(text)]
            places += [(row, last) for start in begun for last in self._last_ids.get(start, ())]
        if not places:
            return logits
        out = logits.clone()
        out[sent(torch.tensor(places), logits.device).unbind(-1)] = -torch.inf
        return out


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
