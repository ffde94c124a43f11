"""Every call of the published guides, old and new."""

from __future__ import annotations

import json
import logging
import warnings
from typing import Any

import pytest

from specdec import ConfigError
from specdec.config import TargetFacts, parse_speculative_config, split, translate_llm_arguments

KNOWN = frozenset({"model", "tensor_parallel_size", "enforce_eager", "async_scheduling", "max_model_len"})
HEAD = ["fc.weight", "layers.0.self_attn.q_proj.weight"]

LEGACY = [
    ({"speculative_model": "{draft}", "num_speculative_tokens": 5}, "draft_model", 5, {"model": "{draft}"}),
    ({"speculative_model": "[ngram]", "num_speculative_tokens": 5, "ngram_prompt_lookup_max": 4}, "ngram", 5,
     {"prompt_lookup_max": 4}),
    ({"speculative_model": "[ngram]", "num_speculative_tokens": 5, "ngram_prompt_lookup_max": 4,
      "ngram_prompt_lookup_min": 2}, "ngram", 5, {"prompt_lookup_max": 4, "prompt_lookup_min": 2}),
    ({"tensor_parallel_size": 4, "speculative_model": "{mlp}", "speculative_draft_tensor_parallel_size": 1},
     "mlp_speculator", 3, {"draft_tensor_parallel_size": 1}),
    ({"tensor_parallel_size": 4, "speculative_model": "{eagle}", "speculative_draft_tensor_parallel_size": 1,
      "num_speculative_tokens": 2}, "eagle", 2, {"draft_tensor_parallel_size": 1}),
    ({"tensor_parallel_size": 1, "speculative_model": "{draft}", "use_v2_block_manager": True,
      "num_speculative_tokens": 5}, "draft_model", 5, {}),
]  # fmt: skip

CONFIGS: list[tuple[str, str, int, dict[str, Any]]] = [
    ('{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}', "ngram", 5, {"prompt_lookup_max": 4}),
    ('{"method": "eagle", "model": "{eagle}", "draft_tensor_parallel_size": 1, "num_speculative_tokens": 2}', "eagle", 2,
     {"draft_tensor_parallel_size": 1}),
    ('{"method": "suffix", "num_speculative_tokens": 15}', "suffix", 15, {}),
    ('{"method": "draft_model", "model": "{draft}", "num_speculative_tokens": 5}', "draft_model", 5, {}),
    ('{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 5}', "ngram", 4,
     {"prompt_lookup_min": 2, "prompt_lookup_max": 5}),
    ('{"method": "suffix", "num_speculative_tokens": 8, "suffix_decoding_max_tree_depth": 24, '
     '"suffix_decoding_max_cached_requests": 10000, "suffix_decoding_max_spec_factor": 1.0, '
     '"suffix_decoding_min_token_prob": 0.1}', "suffix", 8, {"suffix_decoding_max_spec_factor": 1.0}),
    ('{"method": "eagle3", "model": "{eagle}", "num_speculative_tokens": 3}', "eagle3", 3, {}),
    ('{"method": "mtp", "num_speculative_tokens": 1}', "mtp", 1, {}),
    ('{"method": "deepseek_mtp", "num_speculative_tokens": 2, "disable_padded_drafter_batch": "False"}', "mtp", 2, {}),
    ('{"method": "draft_model", "model": "{draft}", "num_speculative_tokens": 8, "parallel_drafting": true}',
     "draft_model", 8, {"parallel_drafting": True}),
    ('{"method": "ngram", "num_speculative_tokens": 5, "rejection_sample_method": "strict", "max_model_len": 32, '
     '"draft_tensor_parallel_size": 1}', "ngram", 5, {"max_model_len": 32}),
]  # fmt: skip


@pytest.fixture
def paths(checkpoint: Any) -> dict[str, str]:
    """The checkpoints that the calls name."""
    llama = {"model_type": "llama", "vocab_size": 100}
    return {
        "{draft}": checkpoint("opt-125m", llama),
        "{mlp}": checkpoint("llama3-70b-accelerator", {"model_type": "mlp_speculator", "n_predict": 3}),
        "{eagle}": checkpoint("EAGLE-LLaMA3.1-Instruct-8B", llama, HEAD),
    }


def filled(text: str, paths: dict[str, str]) -> str:
    for placeholder, path in paths.items():
        text = text.replace(placeholder, path)
    return text


def check(keys: Any, method: str, k: int, expected: dict[str, Any], ranks: int) -> None:
    target = TargetFacts("target", {}, vocab_size=100, max_model_len=64, tensor_parallel_size=ranks)
    resolved = parse_speculative_config(keys, target=target)
    assert resolved is not None
    assert (resolved.config.method, resolved.config.num_speculative_tokens) == (method, k)
    assert resolved.proposer_class.name == method
    config = resolved.proposer_config.model_dump()
    assert {key: config[key] for key in expected} == expected


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(("arguments", "method", "k", "expected"), LEGACY)
def test_older_arguments(
    paths: dict[str, str], arguments: dict[str, Any], method: str, k: int, expected: dict[str, Any]
) -> None:
    given = json.loads(filled(json.dumps({"model": "facebook/opt-6.7b", **arguments}), paths))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        translated = translate_llm_arguments(given, KNOWN)
        assert set(translated) <= KNOWN | {"speculative_config"}
        expected = json.loads(filled(json.dumps(expected), paths))
        check(translated["speculative_config"], method, k, expected, given.get("tensor_parallel_size", 1))
    kinds = {warning.category for warning in caught}
    assert kinds == {DeprecationWarning}
    old = [name for name in given if name not in KNOWN and name != "use_v2_block_manager"]
    named = [str(warning.message) for warning in caught if str(warning.message).startswith("LLM(")]
    assert len(named) == len(old), "one deprecation warning for each older argument"


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(("text", "method", "k", "expected"), CONFIGS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_todays_configurations(
    paths: dict[str, str], text: str, method: str, k: int, expected: dict[str, Any]
) -> None:
    for form in (filled(text, paths), json.loads(filled(text, paths))):
        check(form, method, k, expected, ranks=1)


@pytest.mark.parametrize(("text", "method"), [(text, method) for text, method, _, _ in CONFIGS])
def test_they_parse_without_any_plugin(text: str, method: str) -> None:
    config, rest = split(json.loads(text))
    assert config.num_speculative_tokens
    assert not any(key in type(config).model_fields for key in rest)


def test_arguments_that_change_only_how_vllm_runs_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    arguments = {
        "model": "m",
        "tensor_parallel_size": 4,
        "distributed_executor_backend": "mp",
        "enforce_eager": True,
        "async_scheduling": True,
        "swap_space": 4,
        "use_v2_block_manager": True,
    }
    with caplog.at_level(logging.WARNING, "specdec"):
        first = translate_llm_arguments(arguments, KNOWN)
        assert translate_llm_arguments(arguments, KNOWN) == first
    assert first == {
        "model": "m", "tensor_parallel_size": 4, "enforce_eager": True, "async_scheduling": True,
    }  # fmt: skip
    told = sorted(record.getMessage().split("'")[1] for record in caplog.records)
    assert told == ["distributed_executor_backend", "swap_space", "use_v2_block_manager"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tensor_paralel_size": 2}, "LLM: unknown key 'tensor_paralel_size': did you mean 'tensor_parallel_size'? Valid"),
        ({"kv_cache_dtype": "fp8"}, "LLM: 'kv_cache_dtype' = 'fp8' is not supported: the cache has the model's dtype"),
        ({"pipeline_parallel_size": 2}, "LLM: 'pipeline_parallel_size' = 2 is not supported"),
        ({"speculative_model": "x", "speculative_config": {"method": "y"}},
         "LLM: model given both as older arguments and beside speculative_config"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_arguments_that_are_wrong(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        translate_llm_arguments({"model": "m", **arguments}, KNOWN)
    assert message in str(caught.value)


def test_arguments_at_their_harmless_values_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    arguments = {
        "model": "m",
        "kv_cache_dtype": "auto",
        "pipeline_parallel_size": 1,
        "speculative_model": None,
    }
    with caplog.at_level(logging.WARNING, "specdec"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert translate_llm_arguments(arguments, KNOWN) == {"model": "m"}
    assert not caplog.records


def test_attention_backends_that_only_vllm_knows_are_dropped_with_a_notice(caplog):
    known = KNOWN | {"attention_backend"}
    with caplog.at_level(logging.INFO, logger="specdec"):
        assert translate_llm_arguments({"attention_backend": "FLASH_ATTN"}, known) == {}
    assert "'attention_backend' has no effect here" in caplog.text
    for ours in ("auto", "sdpa", "triton", "flash"):
        assert translate_llm_arguments({"attention_backend": ours}, known) == {"attention_backend": ours}
