"""Documents that execute: snippets and commands run, generated parts are up to date, links and targets exist.

Python blocks of one document run one after another and share their names. `<!-- file: NAME -->` before a block writes
it to a file instead, `<!-- file: NAME, appended -->` adds it to one.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import generate_docs
import measured
import pytest
from matrix_table import read_cells, write_cells
from openai import OpenAI
from packages import ROOT, packages
from readme_table import engines_table, results_table
from speccheck.pages import blocks

from specdec import LLM, RequestOutput

FOLDERS = [package.folder for package in packages()]
DOCUMENTS = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *(folder / "README.md" for folder in FOLDERS)}
)
MADE_ELSEWHERE = (
    *("git clone", "make ", "source ", "pip install", "cd "),
    *(
        "specdec check my_idea",
        "specdec check my_kernels",
        "specdec check my_rule",
        "specdec bench --suite",
        "specdec arena ",
        "specdec tune ",
        "specdec serve zoo --lora-modules ",
    ),
)
"""Commands in documents that are checked, not run: the last seven run in testing/tests/scaffold, on installed packages, in
cli/tests/bench, cli/tests/arena and in server/tests/test_lora.py."""


SERVES = "specdec serve "
GENERATES = "specdec generate "
MEASURES = "specdec bench "
SPECULATES = " --speculative-config "
UNTRAINED = {"head", "heads", "with-layers"}
"""Folders with new heads, which documents make to show how they are saved."""
JSON = {"Content-Type": "application/json"}


def commands(document: Path) -> list[str]:
    lines = [
        line for block in blocks(document) if block.language == "console" for line in block.text.splitlines()
    ]
    return [part.strip() for line in lines if line.startswith("$ ") for part in line[2:].split("&&")]


def with_python() -> list[Path]:
    return [
        document for document in DOCUMENTS if any(block.language == "python" for block in blocks(document))
    ]


def titled(document: Path) -> str:
    return str(document.relative_to(ROOT))


@contextmanager
def running(command: str, folder: Path | None = None) -> Iterator[str]:
    """Run a server in a folder while it is needed, and yield its address; it ends well by Ctrl-C.

    Requests without a seed get the same noise in every run, else what is accepted is chance.
    """
    with subprocess.Popen(
        [*shlex.split(command), "--seed", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=folder,
    ) as server:
        assert server.stderr is not None
        try:
            said = next((line for line in server.stderr if "serving" in line), "")
            assert said, f"{command} ended before it served"
            yield re.findall(r"http://\S+", said)[-1]
            server.send_signal(signal.SIGINT)
            rest = server.stderr.read()
            assert server.wait(timeout=60) == 0, rest
        finally:
            server.kill()


def environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def served_accepted(address: str) -> int:
    """Return how many drafted tokens a server has accepted so far."""
    with urlopen(f"{address}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r"^vllm:spec_decode_num_accepted_tokens_total(?:\{.*\})? (\S+)$", text, re.M)
    return int(sum(float(value) for value in found))


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Method and accepted tokens of each LLM with a method, one that has been trained, that has generated something."""
    found: list[tuple[str, int]] = []
    places: dict[LLM, int] = {}
    untrained: set[LLM] = set()
    make, generate = LLM.__init__, LLM.generate

    def made(llm: LLM, model: Any, *, speculative_config: Any = None, **arguments: Any) -> None:
        make(llm, model, speculative_config=speculative_config, **{"seed": 0, **arguments})
        if {model, (speculative_config or {}).get("model")} & UNTRAINED:
            untrained.add(llm)

    def recorded(llm: LLM, *arguments: Any, **named: Any) -> list[RequestOutput]:
        outputs = generate(llm, *arguments, **named)
        if llm.method is not None and llm not in untrained:
            place = places.setdefault(llm, len(found))
            found[place:] = found[place:] or [(llm.method, 0)]
            more = sum(output.metrics.num_accepted_tokens for output in outputs)
            found[place] = (llm.method, found[place][1] + more)
        return outputs

    monkeypatch.setattr(LLM, "__init__", made)
    monkeypatch.setattr(LLM, "generate", recorded)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("document", with_python(), ids=titled)
def test_python_runs_and_drafts_stand(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepted: list[tuple[str, int]]
) -> None:
    run_python(document, tmp_path, monkeypatch)
    assert [entry for entry in accepted if not entry[1]] == [], "an example in which nothing was accepted"


def run_python(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the snippets of a document."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECDEC_BACKENDS", "")  # put back afterwards, whatever a document sets
    monkeypatch.delenv("SPECDEC_BACKENDS")
    names: dict[str, object] = {"__name__": "__main__"}
    servers = [command for command in commands(document) if command.startswith(SERVES)]
    needs_server = any("http://127.0.0.1" in block.text for block in blocks(document))
    with running(servers[0]) if needs_server else nullcontext() as address:
        for block in blocks(document):
            if block.file is not None:
                block.write(tmp_path)
            elif block.language == "python":
                exec(compile(block.text, titled(document), "exec"), names)
        for made in names.values():
            if isinstance(made, OpenAI):
                made.close()
        assert address is None or served_accepted(address) > 0


def test_a_wrong_snippet_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = tmp_path / "wrong.md"
    snippet = "import pathlib\n\nassert pathlib.Path('a.txt').read_text() == 'y'\n"
    document.write_text(f"<!-- file: a.txt -->\n```text\nx\n```\n\n```python\n{snippet}```\n")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    with pytest.raises(AssertionError):
        run_python(document, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=titled)
def test_commands_run_and_drafts_stand(document: Path, tmp_path: Path) -> None:
    for block in blocks(document):
        if block.file is not None:
            block.write(tmp_path)
    for command in commands(document):
        if command.startswith(MADE_ELSEWHERE):
            continue
        if command.startswith(SERVES):
            with running(re.sub(r" --port \d+", "", command) + " --port 0", tmp_path) as address:
                if SPECULATES in command:
                    body = {
                        "model": shlex.split(command)[2],
                        "prompt": "def main(",
                        "max_tokens": 48,
                        "temperature": 0,
                    }
                    sent = Request(f"{address}/v1/completions", json.dumps(body).encode(), JSON)
                    urlopen(sent).close()
                    assert served_accepted(address) > 0, command
                continue
        assert command.startswith("specdec "), f"{command!r}: say here how it is checked"
        arguments = {
            "cwd": tmp_path,
            "env": environment(),
            "capture_output": True,
            "text": True,
        }
        # Greedily: what a text drawn without a seed repeats is chance, and so is what is accepted.
        shows = " --stats --temperature 0" if command.startswith(GENERATES) else ""
        done = subprocess.run(shlex.split(command + shows), check=False, **arguments)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        if command.startswith(GENERATES) and SPECULATES in command:
            assert re.search(r"; [1-9]\d* of \d+ drafted tokens accepted", done.stderr), (
                f"{command}\n{done.stderr}"
            )
        if command.startswith(MEASURES) and SPECULATES in command:
            rows = json.loads((tmp_path / "report.json").read_text())["rows"]
            assert min(row["acceptance_rate"] for row in rows if row["config"] is not None) > 0, command


@pytest.mark.parametrize("document", DOCUMENTS, ids=titled)
def test_what_is_named_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:^\$ .*\b|`)make ([a-z0-9-]+)", text, re.M)) - {"X"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {target for target in targets if not re.search(rf"^{target}:", makefile, re.M)} == set()
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    assert [link for link in links if not (document.parent / link).exists()] == []
    ours = {package.name for package in packages()}
    wanted = {
        name.partition("[")[0]
        for command in commands(document)
        if command.startswith("pip install")
        for name in command.split()[2:]
    }
    assert {name for name in wanted if name.startswith("specdec")} <= ours


@pytest.mark.parametrize("document", measured.pages(), ids=titled)
def test_generated_parts_are_up_to_date(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert generate_docs.generated(document) == text, "run `make docs`"
    assert text.count("<!-- generated:") == text.count("<!-- end -->")


def test_the_map_names_every_folder() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    folders = [folder.name for folder in ROOT.iterdir() if folder.is_dir() and any(folder.rglob("*.py"))]
    assert [
        f for f in folders if not f.startswith(".") and f not in ("build", "dist") and f"`{f}/" not in text
    ] == []


def test_the_readme_plugin_is_short_and_installs(tmp_path: Path) -> None:
    project, target = tmp_path / "project", tmp_path / "target"
    project.mkdir()
    files = [block for block in blocks(ROOT / "README.md") if block.file is not None]
    assert sum(bool(line.strip()) for block in files for line in block.text.splitlines()) <= 25
    for block in files:
        block.write(project)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
    ]
    subprocess.run([*pip, "--target", target, project], check=True)
    environment = os.environ | {"PYTHONPATH": str(target)}
    code = "import json; from specdec import registry as r; print(json.dumps([r.proposer('after_last').__module__]))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == ["my_proposer"]


ROW = {"name": "ngram k=5", "batch_size": 1, "tokens_per_s": 412.4, "speedup": 1.5, "speedup_low": 1.25}
BENCH = {
    "rows": [ROW | {"speedup_high": 1.75, "mean_acceptance_length": 2.041, "identical_to_baseline": True}],
    "environment": {
        "time": "2026-11-21T10:00:00+00:00",
        "cpu": "A CPU",
        "num_cpus": 2,
        "device": "cpu",
        "commit": "a" * 40,
    },
}
PAIR = {"ours": "specdec a|b", "peer": "peer", "dtype": "float32", "batch_size": 4, "ours_tokens_per_s": 10.0}
PAIR |= {
    "peer_tokens_per_s": 5.0,
    "ratio": {"median": 2.0, "low": 1.9, "high": 2.1},
    "num_prompts": 3,
    "num_identical": 3,
}
FAILED = PAIR | {"is_gate_passed": False, "ratio": None, "num_identical": 2}
COMPARISON = {
    "cases": [{"rows": [PAIR | {"is_gate_passed": True}, FAILED]}],
    "environment": {"date": "2026-11-21T10:00:00Z"},
}


def in_columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rows as lists, with what only some have as null in the others."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return {"columns": columns, "rows": [[row.get(name) for name in columns] for row in rows]}


def test_results_tables(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert "Not measured yet" in results_table(file)
    file.write_text(json.dumps(BENCH))
    assert results_table(file).splitlines()[2:] == [
        "| ngram k=5 | 1 | 412 | 1.50 [1.25, 1.75] | 2.04 | yes |",
        "",
        "A CPU, 2 cores, 2026-11-21, commit aaaaaaaaaa; command, versions and every row are in "
        "`benchmarks/results/results.json`.",
    ]
    whole = BENCH["rows"][0] | {"tokens_per_step": 1.9}
    task = whole | {"category": "translation", "speedup": 1.125}
    file.write_text(json.dumps(BENCH | {"rows": [whole | {"category": "overall"}, task]}))
    assert results_table(file).splitlines()[:3] == [
        "| configuration | tokens/s | overall [95 %] | translation | tokens a step | mean acceptance length | "
        "same text as plain |",
        "|---|---|---|---|---|---|---|",
        "| ngram k=5 | 412 | 1.50 [1.25, 1.75] | 1.12 | 1.90 | 2.04 | yes |",
    ]
    table = results_table(file)
    file.write_text(json.dumps(BENCH | in_columns([whole | {"category": "overall"}, task])))
    assert results_table(file) == table
    modified = {"commit": "b" * 40, "is_modified": True}
    file.write_text(json.dumps(BENCH | {"environment": modified}))
    assert "commit bbbbbbbbbb with uncommitted changes;" in results_table(file)
    file.write_text(json.dumps(COMPARISON))
    assert results_table(file).splitlines()[2:4] == [
        "| float32 | 4 | specdec a\\|b | peer | 10 | 5 | 2.00 [1.90, 2.10] | 3 of 3 |",
        "| float32 | 4 | specdec a\\|b | peer |  |  | tokens differ | 2 of 3 |",
    ]


def test_engines_are_lines_and_methods_columns(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    passed = PAIR | {"is_gate_passed": True, "batch_size": 1}
    rows = [
        passed | {"ours": "specdec ngram k=4", "peer": "specdec none"},
        passed | {"ours": "specdec none", "peer": "vllm none compiled"},
        passed | {"ours": "specdec ngram k=4", "peer": "vllm ngram k=4 compiled", "peer_tokens_per_s": 4.0},
        FAILED | {"ours": "specdec none", "peer": "llama_cpp none BF16"},
        passed | {"ours": "specdec ngram k=4", "peer": "llama_cpp none BF16"},
    ]
    file.write_text(json.dumps({"cases": [{"batch_size": 1, "rows": rows}], "environment": {}}))
    assert engines_table(file).splitlines()[:5] == [
        "| batch | engine | plain | ngram |",
        "|---|---|---|---|",
        "| 1 | specdec | 10 | 10 |",
        "| 1 | vLLM | 5 (2.00 [1.90, 2.10]) | 4 (2.00 [1.90, 2.10]) |",
        "| 1 | llama.cpp BF16 | tokens differ |  |",
    ]


def test_the_matrix_is_as_it_is_written(tmp_path: Path) -> None:
    file, copy = ROOT / "tests/results/matrix.json", tmp_path / "matrix.json"
    facts = {
        name: value
        for name, value in json.loads(file.read_text()).items()
        if name not in ("columns", "drafts", "cells")
    }
    write_cells(copy, read_cells(file), facts)
    assert copy.read_text() == file.read_text()
