"""The output projection of a draft that names only the more frequent of the target's ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from specdec import ConfigError
from specdec_runtime.models import output_head

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Int64s = npt.NDArray[np.int64]

_FEWEST_IDS, _FEWEST_BESIDE_OWN = 49152, 32768
"""Where a vocabulary is less than twice as large, a shorter projection saves little."""


def frequent_ids(
    size: int | None,
    vocab_size: int,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    names_own_ids: bool = False,
) -> Int64s | None:
    """Return `[size]` ascending ids that are drafted; None for all of the target's.

    Tokenizers number their tokens in the order in which they were merged, the frequent ones first, and characters by how
    frequent they are; some number characters behind merged tokens.

    Args:
        size: number of ids; None for a quarter of the vocabulary, at least 49,152, where that is at most half of it.
        vocab_size: V, the target's vocabulary size.
        tokenizer: its tokenizer, if there is one.
        names_own_ids: whether drafts name the ids of their request's text besides; the default is then an eighth, at least
            32,768.

    Raises:
        ConfigError: if there are not so many.
    """
    if size is not None and size > vocab_size:
        raise ConfigError(
            f"speculative_config: 'draft_vocab_size': {size} is above the target's {vocab_size} ids: leave it out for all"
        )
    if size is None:
        size = max(_FEWEST_IDS, vocab_size // 4)
        if names_own_ids:
            size = max(_FEWEST_BESIDE_OWN, vocab_size // 8)
        size = size if 2 * size <= vocab_size else vocab_size
    if size >= vocab_size:
        return None
    rank = np.arange(vocab_size)
    if tokenizer is not None:
        ids = rank[: len(tokenizer)]
        tokens: Sequence[str | None] = tokenizer.convert_ids_to_tokens(ids.tolist())
        is_character = np.array([token is not None and len(token) == 1 for token in tokens], np.bool_)
        num_characters = np.cumsum(is_character)
        rank[: len(ids)] = np.where(is_character, num_characters, ids - num_characters)
    return np.sort(np.argsort(rank, kind="stable")[:size])


def is_tied(head: nn.Module, embedding: nn.Module) -> bool:
    """Return whether an output projection is the embedding's weights alone."""
    if (
        type(head) is not nn.Linear
        or not isinstance(embedding, nn.Embedding)
        or len(list(head.parameters())) != 1
    ):
        return False
    return head.weight.data_ptr() == embedding.weight.data_ptr()


def shorten_head(model: PreTrainedModel, ids: Int64s) -> None:
    """Replace a model's output projection by one of these ids (as in FR-Spec, arXiv 2502.14856); its weights are copied.

    Raises:
        ConfigError: if it is not a plain linear map.
    """
    whole = output_head(model)
    if type(whole) is not nn.Linear:
        raise ConfigError(
            f"speculative_config: 'draft_vocab_size': the target's output projection is a {type(whole).__name__}, "
            "not a plain linear map: leave it out"
        )
    rows = torch.from_numpy(ids).to(whole.weight.device)
    short = nn.Linear(whole.in_features, len(rows), whole.bias is not None, device="meta")
    for name, parameter in whole.named_parameters():
        setattr(short, name, nn.Parameter(parameter.detach()[rows], requires_grad=False))
    model.set_submodule(next(name for name, module in model.named_modules() if module is whole), short)
