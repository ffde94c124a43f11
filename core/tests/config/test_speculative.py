"""The common keys: types, bounds, and how they go together."""

from __future__ import annotations

from typing import Any

import pytest

from specdec import ConfigError
from specdec.config import SpeculativeConfig, split


def error_of(**keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        SpeculativeConfig(**keys)
    return str(caught.value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_speculative_tokens": 0}, "'num_speculative_tokens' = 0: input should be greater than 0"),
        ({"num_speculative_tokens": "many"}, "'num_speculative_tokens' = 'many': input should be a valid integer"),
        ({"num_speculative_tokens": True}, "= True: input should be a number, and true or false is none"),
        ({"disable_by_batch_size": True}, "'disable_by_batch_size' = True: input should be a number"),
        ({"max_model_len": False}, "'max_model_len' = False: input should be a number"),
        ({"draft_tensor_parallel_size": 0}, "'draft_tensor_parallel_size' = 0"),
        ({"max_model_len": 0}, "'max_model_len' = 0: input should be greater than or equal to 1"),
        ({"parallel_drafting": "perhaps"}, "'parallel_drafting' = 'perhaps': input should be a valid boolean"),
        ({"draft_sample_method": "best"}, "should be 'greedy', 'probabilistic' or 'coupled'"),
        ({"on_proposer_error": "ignore"}, "'on_proposer_error' = 'ignore': input should be 'fallback' or 'raise'"),
        ({"disable_by_batch_size": 0}, "'disable_by_batch_size' = 0"),
        ({"model": ""}, "'model' = ''"),
        ({"revision": "main"}, "'revision' is that of 'model', which is not given"),
        ({"num_speculative_tokens_per_batch_size": [[1, 4, 3], [4, 8, 2]]}, "[4, 8, 2] overlaps the range before it"),
        ({"num_speculative_tokens_per_batch_size": [[5, 4, 3]]}, "[5, 4, 3] is not a range of batch sizes"),
        ({"num_speculative_tokens_per_batch_size": [[0, 4, 3]]}, "[0, 4, 3] is not a range of batch sizes"),
        ({"num_speculative_tokens_per_batch_size": [[1, 4, -1]]}, "[1, 4, -1]: k must be at least 0"),
        ({"num_speculative_tokens_per_batch_size": [[1, 4]]}, "'num_speculative_tokens_per_batch_size': [0][2] field required"),
        ({"num_speculative_tokens": 2, "num_speculative_tokens_per_batch_size": [[1, 4, 3]]},
         "[1, 4, 3] asks for more than num_speculative_tokens = 2"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_key_and_what_is_allowed(keys: dict[str, Any], message: str) -> None:
    told = error_of(**keys)
    assert told.startswith("speculative_config: ")
    assert message in told


def test_several_problems_are_one_line_each() -> None:
    lines = error_of(num_speculative_tokens=0, max_model_len=0).splitlines()
    assert [line.split(" = ")[0] for line in lines] == [
        "speculative_config: 'num_speculative_tokens'",
        "speculative_config: 'max_model_len'",
    ]


def test_strings_do_for_numbers_and_booleans() -> None:
    config = SpeculativeConfig(num_speculative_tokens="5", parallel_drafting="False")
    assert (config.num_speculative_tokens, config.parallel_drafting) == (5, False)
    assert SpeculativeConfig(parallel_drafting="True").parallel_drafting is True


def test_other_keys_are_left_for_the_method() -> None:
    config, rest = split({"method": "x", "num_speculative_tokens": 5, "prompt_lookup_max": 4})
    assert (config.method, rest) == ("x", {"prompt_lookup_max": 4})


def test_k_follows_the_batch_size() -> None:
    config = SpeculativeConfig(
        num_speculative_tokens=5,
        num_speculative_tokens_per_batch_size=[[9, 16, 0], [1, 2, 4], [3, 8, 2]],
        disable_by_batch_size=20,
    )
    sizes = (1, 2, 3, 8, 9, 16, 17, 20, 21)
    assert [config.cap(size) for size in sizes] == [4, 4, 2, 2, 0, 0, 5, 5, 0]


def test_k_that_is_not_known_yet_has_no_cap() -> None:
    with pytest.raises(ConfigError, match="'num_speculative_tokens' is not known yet"):
        SpeculativeConfig().cap(1)
