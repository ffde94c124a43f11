"""Whether draft and target fit, from their files."""

from __future__ import annotations

from typing import Any

import pytest

from specdec import ConfigError
from specdec.config import Checkpoint, parse_speculative_config, target_facts
from specdec_cli.config.fit import check_fit, sizes_of

LLAMA = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "max_position_embeddings": 512,
    "dtype": "bfloat16",
}


def test_sizes_come_from_config_and_files(checkpoint: Any) -> None:
    sizes = sizes_of(Checkpoint(checkpoint("target", LLAMA, ["a"])))
    assert (sizes.vocab_size, sizes.hidden_size, sizes.max_model_len) == (100, 64, 512)
    assert sizes.kv_bytes_per_token == 2 * 3 * 2 * 16 * 2
    assert sizes.weight_mb is not None
    gpt = {"n_embd": 48, "n_head": 4, "n_layer": 2, "n_positions": 99, "torch_dtype": "float32"}
    other = sizes_of(Checkpoint(checkpoint("gpt", gpt)))
    assert (other.hidden_size, other.max_model_len, other.weight_mb) == (48, 99, None)
    assert other.kv_bytes_per_token == 2 * 2 * 4 * 12 * 4


@pytest.mark.usefixtures("plugins")
def test_a_draft_made_for_another_hidden_size_is_refused(checkpoint: Any) -> None:
    target = target_facts(checkpoint("target", LLAMA))
    head = {"model_type": "mlp_speculator", "n_predict": 3, "emb_dim": 64}
    fits = parse_speculative_config({"model": checkpoint("fits", head)}, target=target)
    assert fits is not None
    assert set(check_fit(fits, target)) == {"target", "draft"}
    wrong = parse_speculative_config({"model": checkpoint("wrong", head | {"emb_dim": 32})}, target=target)
    assert wrong is not None
    with pytest.raises(ConfigError, match="made for hidden states of size 32, those of the target have 64"):
        check_fit(wrong, target)


@pytest.mark.usefixtures("plugins")
def test_a_draft_that_is_not_there(checkpoint: Any) -> None:
    target = target_facts(checkpoint("target", LLAMA))
    config = {"method": "mlp_speculator", "model": "/no/such/draft", "num_speculative_tokens": 2}
    resolved = parse_speculative_config(config, target=target)
    assert resolved is not None
    with pytest.raises(ConfigError, match="'model': there is no directory '/no/such/draft'"):
        check_fit(resolved, target)


def test_a_target_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="--model: there is no directory '/no/such/model'"):
        target_facts("/no/such/model")
