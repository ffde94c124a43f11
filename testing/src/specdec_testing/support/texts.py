"""Texts to draft from: token ids with repeated phrases, the same in every run."""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from functools import cache

from specdec import ConfigError
from specdec_runtime.loading import LoadedTarget

TEXT_LEN = 72
NUM_TEXTS = 4
NUM_SURE_TOKENS = 36
"""Number of tokens at the start of a text that all come from its own part of the pool."""
_POOL = 30
_OWN_IDS = 10
_NUM_PHRASES = 5
_PHRASE_LEN = 6


def texts_for(
    target: LoadedTarget, prompts: Sequence[str | Sequence[int]], *, is_zoo: bool
) -> list[list[int]]:
    """Return at least `NUM_TEXTS` texts of `TEXT_LEN` tokens: the author's, two of the zoo's, and synthetic ones.

    Args:
        target: the target whose ids are used.
        prompts: the author's prompts, as text or ids; short ones are repeated.
        is_zoo: whether the target is the zoo's, for which the zoo's prompts are suitable.

    Raises:
        ConfigError: for text prompts if the target has no tokenizer.
    """
    given = [_ids(target, prompt) for prompt in prompts]
    if is_zoo:
        given += [_ids(target, prompt) for prompt in _zoo_prompts()]
    given = [ids for ids in given if ids]
    cut = [(ids * (TEXT_LEN // len(ids) + 1))[:TEXT_LEN] for ids in given]
    vocab_size = int(target.model.config.get_text_config().vocab_size)
    return cut + [repetitive(vocab_size, seed) for seed in range(max(1, NUM_TEXTS - len(cut)))]


def repetitive(vocab_size: int, seed: int, length: int = TEXT_LEN) -> list[int]:
    """Return a text made of a few phrases, some of which share a prefix.

    All texts take their ids from one pool, each mostly from its own part. Ids that are new to one text therefore already
    have a continuation in another.
    """
    pool = random.Random(0).sample(range(vocab_size), min(_POOL, vocab_size))
    rng = random.Random(seed + 1)
    start = _OWN_IDS // 2 * seed % len(pool)
    own = (pool + pool)[start : start + _OWN_IDS]
    phrases = [[rng.choice(own) for _ in range(_PHRASE_LEN)] for _ in range(_NUM_PHRASES)]
    out: list[int] = []
    while len(out) < length:
        is_own = len(out) < NUM_SURE_TOKENS or rng.random() < 0.5
        out += rng.choice(phrases) if is_own else [rng.choice(pool), *rng.choice(phrases)[:2]]
    return out[:length]


@cache
def _zoo_prompts() -> tuple[str, ...]:
    zoo = importlib.import_module("specdec_zoo")
    return tuple(prompt["prompt"] for prompt in zoo.prompts(2))


def _ids(target: LoadedTarget, prompt: str | Sequence[int]) -> list[int]:
    if not isinstance(prompt, str):
        return list(prompt)
    if target.tokenizer is None:
        raise ConfigError("prompts: text needs a target with a tokenizer; give lists of token ids")
    return list(target.tokenizer(prompt)["input_ids"])
