"""`specdec suffix warm`."""

import json
from unittest.mock import Mock

import pytest
from transformers import AutoTokenizer, LlamaConfig

import specdec_zoo
from specdec import LLM, ConfigError, SamplingParams
from specdec.config.model_name import resolve_name
from specdec.text import fingerprint
from specdec_cli.main import run
from specdec_plugin_suffix import SuffixConfig, SuffixProposer
from specdec_plugin_suffix.cache_file import read_responses
from specdec_plugin_suffix.zoo import zoo_responses

END_OF_TURN = 2
"""SmolLM2's `<|im_end|>`."""

TEXT = "def read_lines(path):\n    with open(path) as file:\n        return file.readlines()\n"


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(specdec_zoo.path("target"))


@pytest.fixture(scope="module")
def smollm2_ids() -> str | None:
    return fingerprint(AutoTokenizer.from_pretrained(resolve_name("smollm2")))


@pytest.fixture
def outputs(tmp_path):
    file = tmp_path / "outputs.jsonl"

    def write(*lines: object):
        file.write_text(
            "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n"
        )
        return str(file)

    return write


def test_every_kind_of_line(outputs, tmp_path, tokenizer, capsys) -> None:
    file = outputs(
        {"text": TEXT},
        {"token_ids": [5, 6, 7], "text": "not this"},
        "",
        {"prompt": "def", "response": " main():"},
        {"text": ""},
        {"ids": [1, 2, 3, 4], "n": 2, "t": 0.0},
        {"ids": list(range(20)), "n": 15},
        {"ids": [1, 2], "n": 2},
    )
    out = tmp_path / "made.cache"
    assert run(["suffix", "warm", file, "--model", "zoo", "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    expected = [
        tokenizer(TEXT)["input_ids"],
        [5, 6, 7],
        tokenizer(" main():")["input_ids"],
        [1, 2, 3, 4],
        list(range(3, 20)),
    ]
    made = read_responses(out, fingerprint(tokenizer), len(tokenizer))
    assert [list(each) for each in made] == expected
    assert report == {
        "cache": str(out),
        "num_responses": 5,
        "num_tokens": sum(map(len, expected)),
        "num_empty": 2,
    }


def test_a_warm_cache_is_drafted_from(outputs, tmp_path) -> None:
    prompt, params = "def read_lines(", SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    plain = LLM("zoo", dtype="float32").generate([prompt], params)[0].outputs[0]
    file, out = outputs({"token_ids": plain.token_ids}), tmp_path / "made.cache"
    assert run(["suffix", "warm", file, "--out", str(out)]) == 0
    accepted = []
    for path in (None, str(out)):
        config = {"method": "suffix", "suffix_decoding_cache_path": path}
        output = LLM("zoo", dtype="float32", speculative_config=config).generate([prompt], params)[0]
        assert output.outputs[0].token_ids == plain.token_ids
        accepted.append(output.metrics.num_accepted_tokens)
    assert accepted[1] > accepted[0]
    assert accepted[1] >= 12


def test_append_keeps_what_is_there(outputs, tmp_path, capsys, tokenizer) -> None:
    out = tmp_path / "made.cache"
    command = ["suffix", "warm", outputs({"token_ids": [1, 2]}), "--out", str(out)]
    assert run(command) == 0
    assert run(command) == 2
    assert "exists: give --append to add to it" in capsys.readouterr().err
    assert run([*command, "--append"]) == 0
    assert len(read_responses(out, fingerprint(tokenizer), len(tokenizer))) == 2
    out.write_text("something else")
    assert run([*command, "--append"]) == 2
    assert out.read_text() == "something else"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"text": ', "line 2: not JSON"),
        ("[" * 100_000, "line 2: cannot be read: maximum recursion depth exceeded"),
        ('{"token_ids": [' + "9" * 5000 + "]}", "line 2: cannot be read: Exceeds the limit"),
        ({"text": "half \ud83d"}, "line 2: 'text' has a lone surrogate, which is no text"),
        ("[1, 2]", "line 2: needs an object with one of the keys 'token_ids', 'text', 'response'"),
        ({"prompt": "only"}, "line 2: needs an object"),
        ({"ids": [1, 2], "n": 3}, "line 2: 'ids' must be a list of token ids, and 'n' how many of them"),
        ({"text": 3}, "line 2: 'text' must be text, got 3"),
        ({"token_ids": "abc"}, "line 2: 'token_ids' must be a list of token ids"),
        ({"token_ids": [1, -1]}, "line 2: 'token_ids' must be a list of token ids"),
        ({"token_ids": [True]}, "line 2: 'token_ids' must be a list of token ids"),
        ({"token_ids": [10**9]}, "line 2: token id 1000000000: zoo has ids below"),
    ],
)
def test_a_bad_line_is_named(outputs, tmp_path, capsys, line, complaint) -> None:
    out = tmp_path / "made.cache"
    assert run(["suffix", "warm", outputs({"text": "good"}, line), "--out", str(out)]) == 2
    assert complaint in capsys.readouterr().err
    assert not out.exists()


def test_files_and_models_that_are_not_there(outputs, tmp_path, capsys) -> None:
    good, out = outputs({"text": "good"}), str(tmp_path / "made.cache")
    for arguments, complaint in [
        ([str(tmp_path / "none"), "--out", out], "cannot read"),
        ([str(tmp_path), "--out", out], "Is a directory"),
        ([good, "--out", str(tmp_path / "none" / "file")], "there is no folder"),
        ([good, "--out", out, "--model", str(tmp_path / "nowhere")], "--model: "),
        ([outputs(""), "--out", out], "holds no outputs"),
        ([good], "Missing option '--out'"),
    ]:
        assert run(["suffix", "warm", *arguments]) == 2, arguments
        assert complaint in capsys.readouterr().err
    (tmp_path / "latin").write_bytes(b'{"text": "\xe9"}\n')
    assert run(["suffix", "warm", str(tmp_path / "latin"), "--out", out]) == 2
    assert "is not UTF-8 text" in capsys.readouterr().err


def test_help_shows_the_command(capsys) -> None:
    assert run(["suffix"]) == 0
    assert "warm" in capsys.readouterr().out


@pytest.mark.slow
def test_the_zoo_has_responses_of_smollm2(smollm2_ids: str) -> None:
    """They fit its tokenizer, and end as the model ends its answers or at the recipe's length."""
    responses = read_responses(specdec_zoo.path("smollm2_suffix") / "responses.xz", smollm2_ids, 49152)
    facts = specdec_zoo.manifest()["artefacts"]["smollm2_suffix"]
    assert (len(responses), sum(map(len, responses))) == (facts["num_responses"], facts["num_tokens"])
    longest = facts["recipe"]["max_tokens"]
    assert all(response[-1] == END_OF_TURN or len(response) == longest for response in responses)


@pytest.mark.slow
def test_the_zoos_responses_are_only_read(
    smollm2_ids: str, make_target_info, feed_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Mock(config=LlamaConfig(hidden_size=576, num_hidden_layers=30, vocab_size=49152))
    config = SuffixConfig.model_validate({"num_speculative_tokens": 8, "suffix_decoding_cache_path": "zoo"})
    proposer = SuffixProposer(config, make_target_info(vocab_size=49152, tokenizer_fingerprint=smollm2_ids))
    proposer.load(target)
    feed = feed_of(proposer)
    response = read_responses(zoo_responses(target.config), smollm2_ids, 49152)[3]
    assert feed.append("a", *response[:6])
    feed.finish("a")
    feed.settle()
    monkeypatch.setattr("specdec_plugin_suffix.keeper.write_responses", Mock(side_effect=AssertionError))
    proposer.save()


def test_a_target_that_the_zoo_has_nothing_of() -> None:
    config = {"method": "suffix", "suffix_decoding_cache_path": "zoo"}
    with pytest.raises(
        ConfigError, match=r"'zoo': the zoo has no artefact 'suffix'.*name a file of your own"
    ):
        LLM("zoo", dtype="float32", speculative_config=config)
