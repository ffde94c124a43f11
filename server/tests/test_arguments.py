import pytest

from specdec import ConfigError
from specdec_server.arguments import split_options


def test_options_become_arguments() -> None:
    words = (
        "M --tensor-parallel-size 1 --gpu_memory_utilization=0.8 --dtype bfloat16 --enforce-eager --seed -1"
    )
    assert split_options(words.split()) == (
        ["M"],
        {
            "tensor_parallel_size": 1,
            "gpu_memory_utilization": 0.8,
            "dtype": "bfloat16",
            "enforce_eager": True,
            "seed": -1,
        },
    )


def test_flags_take_no_word_that_stands_alone() -> None:
    assert split_options(["--enforce-eager", "M"]) == (["M"], {"enforce_eager": True})
    assert split_options(["--enforce-eager", "False", "M"]) == (["M"], {"enforce_eager": False})
    assert split_options(["--no-enable-prefix-caching", "M"]) == (["M"], {"enable_prefix_caching": False})


def test_old_spellings_are_taken() -> None:
    words = "-tp 1 --speculative_model D --use-v2-block-manager --num_speculative_tokens 5"
    assert split_options(words.split())[1] == {
        "tensor_parallel_size": 1,
        "speculative_model": "D",
        "use_v2_block_manager": True,
        "num_speculative_tokens": 5,
    }


@pytest.mark.parametrize(
    ("words", "message"), [("--dtype", "needs a value"), ("--seed 1 --seed 2", "given twice")]
)
def test_what_is_wrong_is_told(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split_options(words.split())
