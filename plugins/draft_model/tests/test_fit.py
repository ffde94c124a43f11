"""Whether a draft fits is checked from files alone, when the configuration is resolved."""

import json

import pytest

from specdec import ConfigError
from specdec.config import TargetFacts, parse_speculative_config


def folder(path, vocab_size, tokens):
    path.mkdir()
    config = {"model_type": "llama", "vocab_size": vocab_size, "max_position_embeddings": 32}
    (path / "config.json").write_text(json.dumps(config))
    if tokens:
        vocabulary = {token: index for index, token in enumerate(tokens)}
        (path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    return str(path)


def keys_of(model, **others):
    return {"method": "draft_model", "model": model, "num_speculative_tokens": 3, **others}


def error_of(keys, target):
    with pytest.raises(ConfigError) as caught:
        parse_speculative_config(keys, target=target)
    return str(caught.value)


def test_a_draft_has_the_targets_vocabulary_unless_both_may_differ(tmp_path) -> None:
    model, target = folder(tmp_path / "draft", 90, None), TargetFacts("target", {}, vocab_size=100)
    assert error_of(keys_of(model), target) == (
        f"speculative_config: 'model': {model} has a vocabulary of 90 tokens, the target one of 100: take a draft with the "
        "target's tokenizer, or set 'use_heterogeneous_vocab': true"
    )
    mixed = parse_speculative_config(keys_of(model, use_heterogeneous_vocab=True), target=target)
    assert mixed is not None
    assert mixed.config.model == model


def test_the_first_ids_that_differ_are_shown_and_unused_ones_do_not_matter(tmp_path) -> None:
    target = TargetFacts(folder(tmp_path / "target", 100, ["a", "b", "c"]), {}, vocab_size=100)
    other = folder(tmp_path / "other", 90, ["a", "c", "b"])
    assert "(target and draft): 1: 'b' and 'c', 2: 'c' and 'b': take" in error_of(keys_of(other), target)
    same = folder(tmp_path / "same", 90, ["a", "b", "c"])
    assert parse_speculative_config(keys_of(same), target=target) is not None


def test_a_draft_is_not_asked_for_longer_contexts_than_it_was_made_for(tmp_path) -> None:
    model = folder(tmp_path / "draft", 90, None)
    assert "'max_model_len' = 33 is above the 32 tokens" in error_of(keys_of(model, max_model_len=33), None)
    assert parse_speculative_config(keys_of(model, max_model_len=32)) is not None
