"""What a configuration means: whose keys are whose, what follows, what is refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from specdec import ConfigError, PluginError
from specdec.config import ResolvedSpeculation, TargetFacts, default_sampler, parse_speculative_config
from specdec.config.compat import speculative_keys
from specdec.interfaces import ProposerConfig

pytestmark = pytest.mark.usefixtures("plugins")
NGRAM = {"method": "ngram", "num_speculative_tokens": 5}
TARGET = TargetFacts(
    "target", {"model_type": "llama"}, vocab_size=100, max_model_len=64, tensor_parallel_size=4
)


def resolve(keys: Any, target: TargetFacts | None = None) -> ResolvedSpeculation:
    resolved = parse_speculative_config(keys, target=target)
    assert resolved is not None
    return resolved


def error_of(keys: Any, target: TargetFacts | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_speculative_config(keys, target=target)
    return str(caught.value)


def test_no_speculation() -> None:
    assert parse_speculative_config(None, target=None) is None
    sampler, config = default_sampler()
    assert (sampler.name, type(config)) == ("strict", sampler.Config)


def test_a_plugin_gets_its_own_keys_and_the_common_ones() -> None:
    resolved = resolve({**NGRAM, "prompt_lookup_max": 4, "max_model_len": 32})
    assert resolved.proposer_class.name == "ngram"
    assert resolved.proposer_config.model_dump(exclude_none=True) == {
        "num_speculative_tokens": 5,
        "max_model_len": 32,
        "parallel_drafting": False,
        "draft_tensor_parallel_size": 1,
        "draft_sample_method": "greedy",
        "on_proposer_error": "fallback",
        "prompt_lookup_max": 4,
    }
    assert resolved.sampler_class.name == "strict"


def test_an_unknown_key_is_named_with_the_nearest_and_all_others() -> None:
    assert error_of({**NGRAM, "prompt_lookup_maximum": 4}) == (
        "speculative_config: unknown key 'prompt_lookup_maximum': did you mean 'prompt_lookup_max'? Valid keys: "
        "adaptive, disable_by_batch_size, draft_sample_method, draft_tensor_parallel_size, max_model_len, method, model, "
        "num_speculative_tokens, num_speculative_tokens_per_batch_size, on_proposer_error, parallel_drafting, "
        "prompt_lookup_max, prompt_lookup_min, quantization, rejection_sample_method, revision "
        "(method 'ngram', sampler 'strict')"
    )
    assert "unknown key 'zzz'. Valid keys: adaptive, disable_by" in error_of({**NGRAM, "zzz": 1})


def test_another_methods_key_is_unknown_too() -> None:
    assert "unknown key 'suffix_decoding_min_token_prob'" in error_of(
        {**NGRAM, "suffix_decoding_min_token_prob": 0.1}
    )


def test_a_wrong_value_of_a_plugins_key_is_told_like_any_other() -> None:
    assert error_of({**NGRAM, "prompt_lookup_max": 0}) == (
        "speculative_config: 'prompt_lookup_max' = 0: input should be greater than or equal to 1"
    )


def test_tensor_parallel_size_points_to_the_drafts() -> None:
    assert error_of({**NGRAM, "tensor_parallel_size": 1}) == (
        "speculative_config: 'tensor_parallel_size' is the target's, an argument of LLM; for the draft use "
        "'draft_tensor_parallel_size'"
    )


@pytest.mark.parametrize("key", ["temperature", "top_p", "top_k", "seed", "max_tokens", "repetition_penalty"])
def test_sampling_parameters_point_to_sampling_params(key: str) -> None:
    assert error_of({**NGRAM, key: 1}) == (
        f"speculative_config: {key!r} is a sampling parameter: give it per request, SamplingParams({key}=...)"
    )


def test_a_method_that_is_not_installed_parses_and_then_says_how_to_get_it() -> None:
    with pytest.raises(
        PluginError,
        match="method 'extract_hidden_states' is not installed: no package of specdec provides it",
    ):
        parse_speculative_config({"method": "extract_hidden_states", "num_speculative_tokens": 7, "a_key": 1})


@pytest.mark.parametrize(
    "key",
    ["enforce_eager", "async_scheduling", "disable_padded_drafter_batch", "attention_backend", "moe_backend",
     "use_local_argmax_reduction", "disable_eagle_block_drop", "code_revision"],
)  # fmt: skip
def test_keys_that_change_only_how_vllm_runs_are_told_once(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "specdec"):
        assert resolve({**NGRAM, key: "False"}) == resolve({**NGRAM, key: True})
        assert resolve({**NGRAM, key: None}) == resolve(NGRAM)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"speculative_config: {key!r} has no effect here: ")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("kv_cache_dtype", "fp8", "another one would change memory"),
        ("draft_load_config", {}, "loaded from safetensors"),
        ("speculative_token_tree", "[(0,)]", "an option of the method's plugin"),
    ],
)
def test_keys_that_would_change_result_or_memory_are_refused(key: str, value: Any, reason: str) -> None:
    told = error_of({**NGRAM, key: value})
    assert told.startswith(f"speculative_config: {key!r} = {value!r} is not supported: ")
    assert reason in told


def test_their_harmless_values_are_not() -> None:
    assert (
        resolve({**NGRAM, "kv_cache_dtype": "auto"})
        == resolve({**NGRAM, "kv_cache_dtype": None})
        == resolve(NGRAM)
    )


def test_old_keys_and_values_have_new_names() -> None:
    with pytest.warns(DeprecationWarning, match="is now called") as caught:
        renamed = speculative_keys().with_new_names({"acceptance_method": "typical_acceptance_sampler"})
    assert renamed == {"rejection_sample_method": "typical"}
    assert [str(warning.message) for warning in caught] == [
        "speculative_config: 'acceptance_method' is now called 'rejection_sample_method'",
        "speculative_config: 'rejection_sample_method': 'typical_acceptance_sampler' is now called 'typical'",
    ]
    both = {**NGRAM, "acceptance_method": "a", "rejection_sample_method": "b"}
    assert "'acceptance_method' is the old name of 'rejection_sample_method'" in error_of(both)


def test_quantization_that_a_method_does_not_declare_is_refused() -> None:
    assert error_of({**NGRAM, "quantization": "fp8"}) == (
        "speculative_config: method 'ngram' does not support 'quantization' = 'fp8': leave it out"
    )
    assert "does not support 'parallel_drafting' = True" in error_of({**NGRAM, "parallel_drafting": "True"})


def test_k_is_required_where_nothing_says_it() -> None:
    told = error_of({"method": "ngram"})
    assert told.startswith(
        "speculative_config: 'num_speculative_tokens' is missing: method 'ngram' has no default"
    )
    assert "n_predict" in told


def test_k_defaults_to_an_option_of_the_method() -> None:
    assert resolve({"method": "suffix"}).config.num_speculative_tokens == 24
    assert (
        resolve({"method": "suffix", "suffix_decoding_max_tree_depth": 7}).config.num_speculative_tokens == 7
    )


def test_k_defaults_to_what_the_draft_was_trained_for(checkpoint: Any) -> None:
    model = checkpoint("accelerator", {"model_type": "mlp_speculator", "n_predict": 3})
    resolved = resolve({"model": model})
    assert (resolved.config.method, resolved.config.num_speculative_tokens) == ("mlp_speculator", 3)
    assert resolve({"model": model, "num_speculative_tokens": 2}).config.num_speculative_tokens == 2
    assert resolve({"model": model, "num_speculative_tokens": 6}).config.num_speculative_tokens == 6
    told = error_of({"model": model, "num_speculative_tokens": 4})
    assert "'num_speculative_tokens' = 4 must be divisible by n_predict = 3" in told


def test_k_defaults_to_the_targets_own_layers() -> None:
    target = TargetFacts("target", {"text_config": {"num_nextn_predict_layers": 2}})
    assert resolve({"method": "mtp"}, target).config.num_speculative_tokens == 2
    assert resolve({"method": "mtp", "num_speculative_tokens": 4}, target).config.num_speculative_tokens == 4
    assert "must be divisible by n_predict = 2" in error_of(
        {"method": "mtp", "num_speculative_tokens": 3}, target
    )


def test_the_draft_takes_one_rank_or_the_targets() -> None:
    assert resolve(NGRAM, TARGET).config.draft_tensor_parallel_size == 4
    assert resolve({**NGRAM, "draft_tensor_parallel_size": 1}, TARGET).config.draft_tensor_parallel_size == 1
    assert error_of({**NGRAM, "draft_tensor_parallel_size": 2}, TARGET) == (
        "speculative_config: 'draft_tensor_parallel_size' = 2 must be 1 or the target's tensor_parallel_size = 4"
    )


def test_a_method_may_have_one_rank_only(checkpoint: Any, caplog: pytest.LogCaptureFixture) -> None:
    model = checkpoint("accelerator", {"model_type": "mlp_speculator", "n_predict": 3})
    assert resolve({"model": model}, TARGET).config.draft_tensor_parallel_size == 1
    with caplog.at_level(logging.WARNING, "specdec"):
        resolved = resolve({"model": model, "draft_tensor_parallel_size": 4}, TARGET)
    assert resolved.proposer_config.draft_tensor_parallel_size == 1
    assert "'draft_tensor_parallel_size' = 4 has no effect: this draft runs on 1 rank" in caplog.text


def test_a_draft_has_no_longer_context_than_the_target() -> None:
    assert "'max_model_len' = 65 is above the target's 64" in error_of({**NGRAM, "max_model_len": 65}, TARGET)
    assert resolve({**NGRAM, "max_model_len": 64}, TARGET).config.max_model_len == 64


@pytest.mark.parametrize("k", [64, 10**6])
def test_no_more_tokens_are_drafted_than_a_context_has_room_for(k: int) -> None:
    told = f"'num_speculative_tokens' = {k} is more than a context of max_model_len = 64 has room for: at most 63"
    assert told in error_of({**NGRAM, "num_speculative_tokens": k}, TARGET)
    assert resolve({**NGRAM, "num_speculative_tokens": 63}, TARGET).config.num_speculative_tokens == 63


def test_true_is_no_number_in_a_plugins_keys_and_a_samplers() -> None:
    for keys in (
        {"prompt_lookup_max": True},
        {"rejection_sample_method": "typical", "posterior_threshold": True},
    ):
        (key,) = keys.keys() - {"rejection_sample_method"}
        assert f"'{key}' = True: input should be a number, and true or false is none" in error_of(
            {**NGRAM, **keys}
        )


def test_a_plugin_checks_the_resolved_keys_against_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(config: ProposerConfig, target: TargetFacts | None) -> None:
        raise ConfigError(f"k = {config.num_speculative_tokens} for {target and target.vocab_size} ids")

    monkeypatch.setattr(ProposerConfig, "check_fit", check)
    assert error_of(NGRAM, TARGET) == "k = 5 for 100 ids"
    assert error_of(NGRAM) == "k = 5 for None ids"


def test_a_class_of_ones_own_needs_no_package(site: Any) -> None:
    (site.path / "own.py").write_text(
        "from specdec import Draft, Proposer\n"
        "class Own(Proposer):\n    name = 'own'\n    def propose(self, batch): return Draft.empty(1)\n"
    )
    for keys in (
        {"method": "custom_class", "model": "own.Own"},
        {"model": "own.Own"},
        {"method": f"{site.path}/own.py:Own"},
    ):
        resolved = resolve({**keys, "num_speculative_tokens": 2})
        assert (resolved.proposer_class.name, resolved.config.model) == ("own", None)
