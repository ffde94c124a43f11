"""Drafts of some ids: which ids, and that their logits are those of the whole projection."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from specdec import ConfigError
from specdec_plugin_self_draft.short_head import frequent_ids, is_tied, shorten_head

VOCAB, WIDTH = 96, 64


class Model(nn.Module):
    """A model of nothing but an output projection."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.lm_head = head

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head


class Tokenizer:
    """Merged tokens by number, and four characters behind them."""

    tokens = (*(f"t{number}" for number in range(VOCAB - 6)), "e", "t", "a", "o")

    def __len__(self) -> int:
        return len(self.tokens)

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.tokens[number] for number in ids]


def test_the_default_leaves_small_vocabularies_whole() -> None:
    assert frequent_ids(None, 98303, None) is None
    assert frequent_ids(VOCAB, VOCAB, None) is None
    for vocab_size, expected in ((98304, 49152), (2**17, 49152), (2**18, 2**16)):
        ids = frequent_ids(None, vocab_size, None)
        assert ids is not None
        assert ids.tolist() == list(range(expected))
    assert frequent_ids(None, 65535, None, names_own_ids=True) is None
    for vocab_size, expected in ((65536, 32768), (2**17, 32768), (2**19, 2**16)):
        ids = frequent_ids(None, vocab_size, None, names_own_ids=True)
        assert ids is not None
        assert ids.tolist() == list(range(expected))


def test_an_output_projection_is_tied_if_it_is_the_embedding_alone() -> None:
    embedding = nn.Embedding(VOCAB, WIDTH)
    tied, biased = nn.Linear(WIDTH, VOCAB, False), nn.Linear(WIDTH, VOCAB)
    assert not is_tied(tied, embedding)
    tied.weight = biased.weight = embedding.weight
    assert is_tied(tied, embedding)
    assert not is_tied(biased, embedding)
    assert not is_tied(nn.Identity(), embedding)


def test_first_merges_and_first_characters_are_frequent() -> None:
    first = VOCAB - 6
    ids = frequent_ids(8, VOCAB, Tokenizer())  # type: ignore[arg-type]
    assert ids is not None
    assert ids.tolist() == [0, 1, 2, 3, 4, first, first + 1, first + 2]


@pytest.mark.parametrize("has_bias", [False, True])
def test_logits_are_those_of_the_whole_projection(has_bias: bool) -> None:
    whole = nn.Linear(WIDTH, VOCAB, has_bias)
    model = Model(whole)
    ids = frequent_ids(16, VOCAB, Tokenizer())  # type: ignore[arg-type]
    assert ids is not None
    shorten_head(model, ids)  # type: ignore[arg-type]
    assert model.lm_head is not whole
    x = torch.randn(3, WIDTH)
    torch.testing.assert_close(model.lm_head(x), whole(x)[:, ids])


def test_more_ids_than_there_are_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'draft_vocab_size': 97 is above the target's 96 ids"):
        frequent_ids(VOCAB + 1, VOCAB, None)


def test_another_projection_is_refused() -> None:
    with pytest.raises(ConfigError, match="'draft_vocab_size': the target's output projection is a Identity"):
        shorten_head(Model(nn.Identity()), frequent_ids(4, VOCAB, None))  # type: ignore[arg-type]
