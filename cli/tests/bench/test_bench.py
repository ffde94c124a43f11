"""`specdec bench`: options, report and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specdec.engine_options import EngineOptions
from specdec.errors import ConfigError
from specdec.registry.catalogue import known_methods
from specdec_cli import default_configs
from specdec_cli.bench.report import Report
from specdec_cli.bench.show import warnings
from specdec_cli.main import run

CONFIG = json.dumps({"method": "speccheck.proposers.Scripted", "num_speculative_tokens": 2})
SHORT = ["--max-tokens", "4", "--rounds", "2"]


@pytest.fixture(scope="module")
def report(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a run with two configurations, written to a file."""
    folder = tmp_path_factory.mktemp("bench")
    prompts = folder / "prompts.jsonl"
    prompts.write_text('{"prompt_token_ids": [7, 8, 9]}\n{"prompt_token_ids": [5]}\n{"prompt": "left out"}\n')
    other = json.dumps({**json.loads(CONFIG), "num_speculative_tokens": 3})
    options = ["--dataset", str(prompts), "--num-prompts", "2", "--batch-size", "2", "--temperature", "0.5"]
    out = folder / "out.json"
    arguments = ["--model", tiny_model, *options, *SHORT, "--seed", "3", "--dtype", "float32"]
    configs = ["--speculative-config", CONFIG, "--speculative-config", other]
    code = run(["bench", *arguments, *configs, "--json", str(out)])
    assert code == 0
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_rows_are_the_baseline_and_the_configurations(report: dict[str, Any]) -> None:
    assert list(report) == ["rows", "environment"]
    names = [row["name"] for row in report["rows"]]
    assert names == [
        "baseline",
        "speccheck.proposers.Scripted k=2",
        "speccheck.proposers.Scripted k=3",
    ]
    assert report["rows"][1]["config"] == json.loads(CONFIG)
    assert all(row["identical_to_baseline"] for row in report["rows"])
    assert {(row["num_prompts"], row["batch_size"]) for row in report["rows"]} == {(2, 2)}


def test_environment_tells_how_to_repeat_it(report: dict[str, Any], tiny_model: str) -> None:
    environment = report["environment"]
    assert environment["versions"]["torch"]
    assert environment["versions"]["specdec-core"]
    assert environment["model"] == tiny_model
    expected = {
        "temperature": 0.5,
        "seed": 3,
        "max_tokens": 4,
        "rounds": 2,
        "dtype": "float32",
        "device": "cpu",
    }
    assert {key: environment[key] for key in expected} == expected


def test_json_on_the_standard_output_is_all_there_is(
    tiny_model: str, dataset: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "--model", tiny_model, "--dataset", dataset, *SHORT, "--json", "-"]) == 0
    out, err = capfd.readouterr()
    methods = [row["method"] for row in json.loads(out)["rows"]]
    assert methods == [None, default_configs()[0]["method"]]  # no configuration is given
    assert err == ""


def test_table_for_people_is_plain_in_a_pipe(
    tiny_model: str, dataset: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench", "--model", tiny_model, "--dataset", dataset, *SHORT]
    assert run([*arguments, "--speculative-config", CONFIG]) == 0
    out, err = capfd.readouterr()
    assert "\x1b" not in out + err
    assert err == ""
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    headings = "configuration tok/s speed-up 95 % accepted drafted identical"
    assert lines[0].split() == headings.split()
    assert lines[1].startswith("baseline ")
    assert " 1.00x " in lines[1]
    assert " 0 % " in lines[1]
    assert lines[2].startswith("speccheck.propo")  # as much of a long name as fits
    assert lines[2].endswith(" yes")
    facts = "2 prompts, 4 tokens each at most, batch size 1, temperature 0.8, float32 on cpu, 2 rounds."
    assert facts in " ".join(out.split())
    assert "ms per step" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "nowhere.jsonl"], "cannot read 'nowhere.jsonl': No such file"),
        (["--dataset", "BAD"], "line 2: not JSON"),
        (["--speculative-config", "{"], "speculative_config is neither JSON nor YAML"),
        (["--speculative-config", '{"method": "nobody", "num_speculative_tokens": 2}'], "no method 'nobody'"),
        (["--speculative-config", CONFIG[:-1] + ', "topk": 2}'], "unknown key 'topk'"),
        (["--json", "no/such/folder/out.json"], "--json: there is no folder 'no/such/folder'"),
        (["--html", "no/such/folder/out.html"], "--html: there is no folder 'no/such/folder'"),
        (["more.jsonl"], "FILE 'more.jsonl' and --dataset"),
        (["--rounds", "0"], "Invalid value for '--rounds'"),
        (["--temperature", "-1"], "Invalid value for '--temperature'"),
        (["--dtype", "float12"], "dtype='float12' is not one of"),
        (["--model", "no/such/model"], "no/such/model"),
        (["--max-model-len", "5000"], "max_model_len=5000 is longer than the model's"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    tiny_model: str,
    dataset: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "fine"}\n{"prompt":\n')
    arguments = [str(bad) if argument == "BAD" else argument for argument in arguments]
    assert run(["bench", "--model", tiny_model, "--dataset", dataset, *SHORT, *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert message in err


def test_a_prompt_that_does_not_fit_is_named(
    tiny_model: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"prompt_token_ids": [1] * 500}) + "\n")
    assert run(["bench", "--model", tiny_model, "--dataset", str(long)]) == 2
    assert "prompt 1 has 500 tokens: between 1 and 159 fit the model" in capfd.readouterr().err


def test_deterministic_reaches_the_target(
    tiny_model: str, dataset: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def spy(options: EngineOptions) -> None:
        raise ConfigError(f"deterministic is {options.deterministic}")

    monkeypatch.setattr("specdec_runtime.loading.load_target", spy)
    assert run(["bench", dataset, "--model", tiny_model, "--deterministic"]) == 2
    assert "deterministic is True" in capfd.readouterr().err


def test_prefixes_are_cached_if_asked_for(
    tiny_model: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prompts, out = tmp_path / "twice.jsonl", tmp_path / "out.json"
    prompts.write_text(2 * (json.dumps({"prompt_token_ids": list(range(2, 50))}) + "\n"))
    command = ["bench", str(prompts), "--model", tiny_model, *SHORT, "--json", str(out)]
    for options, text in (([], ""), (["--enable-prefix-caching"], "prefixes cached, ")):
        assert run([*command, *options]) == 0
        assert json.loads(out.read_text())["environment"]["prefix_caching"] is bool(options)
        assert f"{text}2 rounds" in " ".join(capfd.readouterr().out.split())


def test_a_configuration_that_drafts_nothing_is_named(
    tiny_model: str, dataset: str, capfd: pytest.CaptureFixture[str]
) -> None:
    failing = json.dumps({**json.loads(CONFIG), "fails_every": 1})
    arguments = ["bench", dataset, "--model", tiny_model, *SHORT, "--json", "-"]
    assert run([*arguments, "--speculative-config", failing]) == 0
    (line,) = (line for line in capfd.readouterr().err.splitlines() if line.startswith("specdec: warning: "))
    assert "k=2 drafted nothing in any step: its proposer failed " in line


def test_a_hint_where_core_knows_the_method() -> None:
    row = {"name": "x k=5", "config": {}, "num_drafts": 0, "num_proposer_errors": 0}
    known = next(name for name, method in known_methods().items() if method.no_drafts_hint)
    (hinted,) = warnings(Report([], {}, [row | {"method": known}]))
    assert hinted.startswith("x k=5 drafted nothing in any step: no text repeated as many tokens as")
    (unknown,) = warnings(Report([], {}, [row | {"method": "mine"}]))
    assert unknown.startswith("x k=5 drafted nothing in any step: the method found nothing to guess")
    assert warnings(Report([], {}, [row | {"method": known, "num_drafts": 1}])) == []
    (failing,) = warnings(
        Report([], {}, [row | {"method": known, "num_drafts": 1, "num_proposer_errors": 2}])
    )
    assert failing == "x k=5: its proposer failed 2 times, each at the cost of a step's drafts"
