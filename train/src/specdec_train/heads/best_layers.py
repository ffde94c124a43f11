"""Selects the target's layers that initialise a draft model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdec_runtime.models import decoder_layers

_NUM_TEXTS, _LENGTH = 4, 64
"""Number of texts to evaluate, and tokens of each; every text is repeated once."""


def best_layers(target: PreTrainedModel, documents: Sequence[Sequence[int]], count: int) -> tuple[int, ...]:
    """Return the layers with which the untrained, truncated target has the lowest loss on repeated text.

    The first layer is always included. Copying needs two layers that work together: one tells each position
    what came before it, and one looks for that (induction heads, arXiv 2209.11895). A draft model that starts
    without them does not learn to copy. Therefore all pairs after the first layer are tried; further layers
    are added greedily, one at a time.

    Args:
        target: a target with L layers.
        documents: token ids of training texts.
        count: number of layers; at most L - 1, and at least 1.

    Returns:
        ascending layer numbers.

    Raises:
        ValueError: if no text is long enough, or the target has only one layer.
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
    """Return `[N, 2 T]`: the beginning of each of the first few long enough documents, twice."""
    pieces = [list(ids[:_LENGTH]) * 2 for ids in documents if len(ids) >= _LENGTH][:_NUM_TEXTS]
    if not pieces:
        raise ValueError(f"no training text has {_LENGTH} tokens: use longer ones")
    return torch.tensor(pieces)


@torch.no_grad()
def _loss(model: PreTrainedModel, tokens: Tensor) -> float:
    """Mean cross-entropy of `tokens [N, T]`, in nats; infinity if it is NaN."""
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    found = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()).item()
    return math.inf if math.isnan(found) else found


@contextmanager
def _cut(model: PreTrainedModel, kept: Sequence[int]) -> Iterator[None]:
    """Make a model run only the given layers."""
    layers = decoder_layers(model)
    config = model.config.get_text_config()
    every, count = layers._modules, config.num_hidden_layers
    part: dict[str, nn.Module] = {str(place): layers[k] for place, k in enumerate(kept)}
    try:
        layers._modules, config.num_hidden_layers = part, len(kept)
        yield
    finally:
        layers._modules, config.num_hidden_layers = every, count
