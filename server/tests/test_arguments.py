import pytest

from specdec import ConfigError
from specdec_server.arguments import as_typed, check_options, split_options, with_file, without_foreign


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


OWN = ("port", "uds", "max_queued_requests")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--dtype", "--dtype needs a value"),
        ("--seed 1 --seed 2", "--seed is given twice"),
        ("--tool-parser-plugin x", "--tool-parser-plugin x is not supported: --tool-call-parser takes"),
        ("--calculate-kv-scales", "--calculate-kv-scales is not supported: the cache"),
        ("--calculate_kv_scales M", "--calculate_kv_scales is not supported: the cache"),
        ("--calculate-kv-scales true", "--calculate-kv-scales true is not supported: the cache"),
        ("--kv_cache_dtype=fp8", "--kv_cache_dtype=fp8 is not supported: the cache has"),
        ("-q awq", "-q awq is not supported: quantised checkpoints"),
        (
            "--api-server-count 4",
            "--api-server-count 4 is not supported: engine and server share one process",
        ),
        ("--lora-modules", "--lora-modules needs a value"),
        ("--prt 4", "unknown option --prt: did you mean --port?"),
        ("--max-num-seq=4", "unknown option --max-num-seq: did you mean --max-num-seqs?"),
        ("--nothing-like-it 4", "unknown option --nothing-like-it: options of the server itself"),
        ("--xyzzy", "unknown option --xyzzy: options of the server itself"),
        ("M --xyzzy --seed 3", "unknown option --xyzzy: "),
    ],
)
def test_what_is_wrong_is_told_as_it_was_typed(words: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_options(words.split(), {}, None, OWN)
    assert str(caught.value).removeprefix("serve: ").startswith(message)


def test_what_changes_nothing_is_taken() -> None:
    words = "M --api-server-count 1 --kv-cache-dtype auto --calculate-kv-scales false --enable-server-load-tracking"
    check_options(words.split(), {"lora_modules": None, "tool_parser_plugin": ""}, "serve.yaml", OWN)
    assert without_foreign(split_options(words.split())[1]) == {
        "kv_cache_dtype": "auto",
        "calculate_kv_scales": False,
    }


def test_what_is_wrong_in_a_file_is_told_with_the_file() -> None:
    with pytest.raises(ConfigError, match=r"^serve\.yaml: 'calculate_kv_scales' = True is not supported: "):
        check_options([], {"calculate_kv_scales": True}, "serve.yaml", OWN)
    with pytest.raises(ConfigError, match=r"^serve\.yaml: unknown option 'prt': did you mean 'port'\?$"):
        check_options(["--seed", "1"], {"prt": 1}, "serve.yaml", OWN)


def test_values_that_the_engine_refuses_are_told_as_they_were_typed() -> None:
    words = ["--max-num-seqs", "0", "--max_model_len=long"]
    assert as_typed("LLM: max_num_seqs=0 must be at least 1", words) == "--max-num-seqs 0 must be at least 1"
    assert as_typed("LLM: max_model_len='long' must be", words) == "--max_model_len=long must be"
    assert as_typed("LLM: seed='x' must be an integer", words) == "LLM: seed='x' must be an integer"


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


def test_adapters_are_several_values_of_one_option() -> None:
    words = ["--lora-modules", "a=/x=y", '{"name": "b", "path": "/z"}', "M", "--enable-lora", "N"]
    assert split_options(words) == (
        ["M", "N"],
        {"lora_modules": ["a=/x=y", {"name": "b", "path": "/z"}], "enable_lora": True},
    )
