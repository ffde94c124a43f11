"""Which of a target's layers a draft model begins with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdec.runner import decoder_layers

_NUM_TEXTS, _LENGTH = 4, 64
"""Texts that are looked at, and tokens of each; every text is said twice."""


def best_layers(target: PreTrainedModel, documents: Sequence[Sequence[int]], count: int) -> tuple[int, ...]:
    """Return the layers with which the target, cut to them and not trained, says text and the same text again best.

    The first layer is always one of them. To say again what was said takes layers that have found each other, one that tells
    each position what came before it and one that looks for that (induction heads, arXiv 2209.11895); a draft model that begins
    without them does not find it out. So all pairs behind the first layer are tried; further ones are added one at a time.

    Args:
        target: of L layers.
        documents: token ids of training texts.
        count: how many; at most L - 1, and at least 1.

    Returns:
        ascending layer numbers.

    Raises:
        ValueError: if no text is long enough to look at, or the target has one layer only.
    """
    others = range(1, len(decoder_layers(target)))
    if not others:
        raise ValueError("the target has one layer only: a draft model with fewer cannot be made of it")
    tokens = _repeated(documents).to(target.device)

    def loss(kept: tuple[int, ...]) -> float:
        with _cut(target, kept):
            return _loss(target, tokens)

    count = min(count, len(others))
    kept = min(((0, *more) for more in combinations(others, min(count, 3) - 1)), key=loss)
    while len(kept) < count:
        kept = min((tuple(sorted((*kept, k))) for k in others if k not in kept), key=loss)
    return kept


def _repeated(documents: Sequence[Sequence[int]]) -> Tensor:
    """Return `[N, 2 T]`: a piece of each of the first few documents, twice."""
    pieces = [list(ids[:_LENGTH]) * 2 for ids in documents if len(ids) >= _LENGTH][:_NUM_TEXTS]
    if not pieces:
        raise ValueError(f"no training text has {_LENGTH} tokens: use longer ones")
    return torch.tensor(pieces)


@torch.no_grad()
def _loss(model: PreTrainedModel, tokens: Tensor) -> float:
    """Mean cross-entropy of `tokens [N, T]`, in nats; infinite where it is not a number."""
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    found = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()).item()
    return math.inf if math.isnan(found) else found


@contextmanager
def _cut(model: PreTrainedModel, kept: Sequence[int]) -> Iterator[None]:
    """Have a model run some of its layers only."""
    layers = decoder_layers(model)
    config = model.config.get_text_config()
    every, count = layers._modules, config.num_hidden_layers
    part: dict[str, nn.Module] = {str(place): layers[k] for place, k in enumerate(kept)}
    try:
        layers._modules, config.num_hidden_layers = part, len(kept)
        yield
    finally:
        layers._modules, config.num_hidden_layers = every, count
