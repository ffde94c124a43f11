"""`specdec generate`: the text, its colours, and mistakes."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from specdec import LLM, SamplingParams
from specdec.config import notices
from specdec_cli.main import run

PROMPT = "def main(self):\n    return self"
PARAMS: dict[str, Any] = {"temperature": 0.8, "max_tokens": 40, "seed": 11}


@pytest.fixture(scope="module")
def expected(tiny_model: str) -> Any:
    """What plain decoding makes of the prompt."""
    return LLM(tiny_model).generate(PROMPT, SamplingParams(**PARAMS))[0]


@pytest.fixture
def knowing(expected: Any) -> str:
    """A configuration that guesses two tokens in three right."""
    text = expected.prompt_token_ids + expected.outputs[0].token_ids
    return json.dumps(
        {"method": "speccheck.proposers.Scripted", "num_speculative_tokens": 3, "texts": [text], "wrong": 0.3}
    )


@pytest.fixture
def command(tiny_model: str) -> list[str]:
    return ["generate", "--model", tiny_model, "--max-tokens", "40", "--seed", "11"]


def test_text_is_that_of_llm(command: list[str], expected: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*command, PROMPT]) == 0
    out, err = capfd.readouterr()
    assert out == expected.outputs[0].text + "\n"
    assert err == ""


def test_a_model_given_as_the_prompt_gets_a_hint(
    command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "zoo"]) == 0
    assert capfd.readouterr().err == "specdec: hint: 'zoo' is the prompt; the model is --model zoo\n"


def test_highlight_is_quiet_in_a_pipe(
    command: list[str], expected: Any, knowing: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--prompt", PROMPT, "--highlight", "--speculative-config", knowing]) == 0
    assert capfd.readouterr().out == expected.outputs[0].text + "\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_in_terminal(arguments: list[str], **environment: str) -> str:
    """Run a command on a terminal and return all that it shows; pytest itself replaces the streams before a test."""
    terminal = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        patch.setattr(sys, "stderr", terminal)
        patch.setattr("specdec_cli.loading", lambda model: nullcontext())  # tested in test_progress.py
        patch.delenv("NO_COLOR", raising=False)
        for name, value in {"TERM": "xterm", **environment}.items():
            patch.setenv(name, value)
        assert run(arguments) == 0
    return terminal.getvalue()


def test_a_terminal_shows_guessed_tokens_in_colour_and_a_summary(
    command: list[str], expected: Any, knowing: str
) -> None:
    shown = run_in_terminal([*command, "--prompt", PROMPT, "--highlight", "--speculative-config", knowing])
    plain = shown.replace("\x1b[32m", "").replace("\x1b[0m", "")
    text, _, summary = plain.removesuffix("\n").rpartition("\n")
    assert shown.count("\x1b[32m") == shown.count("\x1b[0m") > 2
    assert text == expected.outputs[0].text
    assert summary.startswith(f"{len(expected.outputs[0].token_ids)} tokens in ")
    assert "drafted tokens accepted, mean acceptance length " in summary
    assert "lossy" not in summary


def test_no_colour_is_respected(command: list[str], expected: Any, knowing: str) -> None:
    arguments = [*command, "--prompt", PROMPT, "--highlight", "--speculative-config", knowing]
    shown = run_in_terminal(arguments, NO_COLOR="1")
    assert shown.startswith(expected.outputs[0].text)
    assert "\x1b" not in shown


def test_json_is_one_object(
    command: list[str], expected: Any, knowing: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--prompt", PROMPT, "--speculative-config", knowing, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    completion = expected.outputs[0]
    assert found["text"] == completion.text
    assert found["token_ids"] == completion.token_ids
    assert found["finish_reason"] == completion.finish_reason
    assert sum(found["is_from_draft"]) == found["metrics"]["num_accepted_tokens"] > 5
    assert found["metrics"]["mean_acceptance_length"] > 1.5
    assert (found["sampler"], found["is_lossless"]) == ("strict", True)


def test_a_lossy_sampler_is_called_so(
    command: list[str], knowing: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    notices.reset()
    lossy = json.dumps(json.loads(knowing) | {"rejection_sample_method": "typical"})
    assert run([*command, "--prompt", PROMPT, "--speculative-config", lossy, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["sampler"], found["is_lossless"]) == ("typical", False)
    assert "'rejection_sample_method': 'typical' is lossy" in caplog.text
    shown = run_in_terminal([*command, "--prompt", PROMPT, "--speculative-config", lossy])
    assert shown.endswith("; typical is lossy\n")


def test_prompt_from_a_file_and_from_the_standard_input(
    command: list[str],
    expected: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT)
    assert run([*command, "--prompt-file", str(file)]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(PROMPT))
    assert run([*command, "--prompt-file", "-"]) == 0
    assert capfd.readouterr().out == 2 * (expected.outputs[0].text + "\n")


def test_stop_may_be_repeated(command: list[str], expected: Any, capfd: pytest.CaptureFixture[str]) -> None:
    text = expected.outputs[0].text
    stop = next(
        character for character in text[len(text) // 2 :] if character.isascii() and character.isprintable()
    )
    assert run([*command, "--prompt", PROMPT, "--stop", "no such text", "--stop", stop, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["text"], found["finish_reason"], found["stop_reason"]) == (
        text.partition(stop)[0],
        "stop",
        stop,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one prompt: as TEXT, --prompt or --prompt-file"),
        (["x", "--prompt", "x"], "give one prompt: as TEXT"),
        (["--prompt", "x", "--prompt-file", "y"], "give one prompt: as TEXT"),
        (["--prompt", ""], "the prompt is empty"),
        (["--prompt-file", "nowhere.txt"], "--prompt-file: cannot read 'nowhere.txt'"),
        (["--prompt", "x", "--top-p", "2"], "SamplingParams: 'top_p'"),
        (["--prompt", "x", "--dtype", "float12"], "dtype='float12' is not one of"),
        (["--prompt", "x", "--speculative-config", '{"method": "nobody"}'], "no method 'nobody'"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    command: list[str], capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run([*command, *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert message in err


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("nope", "--model: there is no directory 'nope', and a hub id is 'owner/name'"),
        ("./nope", "--model: there is no directory './nope'"),
        ("SmolLM", "there is no directory 'SmolLM' (did you mean 'smollm2'?), and a hub id is 'owner/name'"),
    ],
)
def test_a_model_that_leads_nowhere_is_told_at_once(model: str, told: str) -> None:
    """Before torch is imported, and without a question to the hub."""
    code = (
        "import sys, huggingface_hub as hub; hub.hf_hub_download = None; from specdec_cli.main import run; "
        f"code = run(['generate', '--model', {model!r}, '--prompt', 'x']); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert told in done.stderr


@pytest.mark.parametrize(
    ("command", "config", "told"),
    [
        ("generate --prompt x --model", '{"method": "nobody"}', "no method 'nobody'"),
        ("bench --model", "{bad", "speculative_config is neither JSON nor YAML"),
        ("chat --model", "[1]", "speculative_config must hold a mapping"),
    ],
)
def test_a_wrong_configuration_is_told_before_torch_is_imported(
    tiny_model: str, command: str, config: str, told: str
) -> None:
    arguments = [*command.split(), tiny_model, "--speculative-config", config]
    code = (
        f"import sys; from specdec_cli.main import run; code = run({arguments!r}); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert told in done.stderr


def test_statistics_in_a_pipe(command: list[str], knowing: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--prompt", PROMPT, "--stats", "--speculative-config", knowing]) == 0
    [line] = capfd.readouterr().err.splitlines()
    found = re.fullmatch(r"40 tokens in .* s, \d+ tokens/s; (\d+) of (\d+) drafted tokens accepted, .*", line)
    assert found is not None
    assert 5 < int(found[1]) < int(found[2])


def test_a_run_without_drafts_says_so_and_why(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    never = '{"method": "speccheck.proposers.Scripted", "num_speculative_tokens": 3, "texts": [], "fails_every": 1}'
    assert run([*command, "--prompt", PROMPT, "--speculative-config", never]) == 0
    [line] = capfd.readouterr().err.splitlines()
    told = r"specdec: warning: .*Scripted drafted nothing in any step: its proposer failed \d+ times"
    assert re.fullmatch(told, line), line
    assert run([*command[:3], "--max-tokens", "1", "--prompt", PROMPT, "--speculative-config", never]) == 0
    assert capfd.readouterr().err == "", "nothing could have been drafted"


FAR = """
from specdec import Draft, Proposer

class Far(Proposer):
    name = "far"

    def propose(self, batch):
        return Draft.from_lists([[10**6] * most for most in batch.max_nodes])
"""


def test_a_run_whose_drafts_cannot_be_scored_says_so(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "far.py").write_text(FAR)
    wrong = json.dumps({"method": f"{tmp_path}/far.py:Far", "num_speculative_tokens": 2})
    assert run([*command, "--prompt", PROMPT, "--speculative-config", wrong]) == 0
    told = r"drafted nothing in any step that can be scored: \d+ nodes were cut"
    assert re.search(told, capfd.readouterr().err)


@pytest.fixture
def talking(tiny_model: str, tmp_path: Path) -> str:
    """The tiny model with a chat template."""
    folder = shutil.copytree(tiny_model, tmp_path / "talking")
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    )
    return str(folder)


def test_a_prompt_asked_as_a_message(talking: str, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["generate", "--model", talking, "--max-tokens", "40", "--seed", "11"]
    assert run([*command, "--prompt", "main", "--chat"]) == 0
    expected = LLM(talking).chat([{"role": "user", "content": "main"}], SamplingParams(**PARAMS))[0]
    assert expected.prompt == "user: main\n"
    assert capfd.readouterr().out == expected.outputs[0].text + "\n"


def test_a_bare_prompt_that_is_not_answered_gets_a_hint(
    talking: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The model ends its text at once: its end-of-text token is made to be what it chooses first."""
    first = (
        LLM(talking).generate(PROMPT, SamplingParams(temperature=0, max_tokens=1))[0].outputs[0].token_ids[0]
    )
    for name in ("config.json", "generation_config.json"):
        file = Path(talking, name)
        file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": first}))
    command = ["generate", "--model", talking, "--temperature", "0", "--prompt", PROMPT]
    assert run(command) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "specdec: warning: the model generated no text: the first token it chose ends it",
        "specdec: hint: the model has a chat template: if it was trained on conversations, --chat asks the prompt as a message",
    ]


def test_bytes_of_the_command_line_that_are_not_utf_8_are_named(
    talking: str, capfd: pytest.CaptureFixture[str]
) -> None:
    command, text = ["generate", "--model", talking], os.fsdecode(b"ab\xff")
    for given in (["--prompt", text], ["--prompt", text, "--chat"], ["--prompt", "ab", "--stop", text]):
        assert run([*command, *given]) == 2
        assert "has the unpaired surrogate '\\udcff' at index 2" in capfd.readouterr().err, given
