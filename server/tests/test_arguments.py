import pytest

from specdec import ConfigError
from specdec_server.arguments import split_options, with_file, without_foreign


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


def test_flags_of_other_engines_take_no_word_either() -> None:
    assert split_options(["--enable-chunked-prefill", "--async-scheduling", "/no/such/model"]) == (
        ["/no/such/model"],
        {"enable_chunked_prefill": True, "async_scheduling": True},
    )
    words, options = split_options(["--disable-log-requests", "M"])
    assert (words, without_foreign(options)) == (["M"], {})


def test_parts_of_a_mapping_and_text_that_looks_like_a_number() -> None:
    words = (
        "--speculative-config.method ngram --speculative-config.num_speculative_tokens 3 --revision 1234567"
    )
    assert split_options(words.split())[1] == {
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
        "revision": "1234567",
    }
    assert split_options(["-sc", '{"method": "ngram"}'])[1] == {"speculative_config": {"method": "ngram"}}


def test_old_spellings_are_taken() -> None:
    words = "-tp 1 --speculative_model D --use-v2-block-manager --num_speculative_tokens 5"
    assert split_options(words.split())[1] == {
        "tensor_parallel_size": 1,
        "speculative_model": "D",
        "use_v2_block_manager": True,
        "num_speculative_tokens": 5,
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--dtype", "needs a value"),
        ("--seed 1 --seed 2", "given twice"),
        ("--tool-parser-plugin x", "not supported: --tool-call-parser takes"),
    ],
)
def test_what_is_wrong_is_told(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        without_foreign(split_options(words.split())[1])


def test_a_file_is_for_what_the_command_line_does_not_give() -> None:
    from_file = {
        "seed": 1,
        "revision": 1234567,
        "enable_prefix_caching": True,
        "speculative_config": {"method": "ngram"},
    }
    given = split_options(["--no-enable-prefix-caching", "--speculative-config.method", "suffix"])[1]
    assert with_file(given, from_file) == {
        "seed": 1,
        "revision": "1234567",
        "enable_prefix_caching": False,
        "speculative_config": {"method": "suffix"},
    }
