"""The notebooks run, in a short form: on the zoo's model, with few tokens."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packages import ROOT

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
SHORTER = {'MODEL = "smollm2"': 'MODEL = "zoo"', "MAX_TOKENS = 96": "MAX_TOKENS = 12"}
MAX_BYTES = 20_000


def script_of(notebook: Path) -> str:
    """Return the code of a notebook, shortened, as a script."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    for long, short in SHORTER.items():
        assert code.count(long) == 1, f"{notebook.name}: {long} is not there once"
        code = code.replace(long, short)
    return code


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / "notebook.py"
    script.write_text(code, encoding="utf-8")
    environment = os.environ | {"MPLBACKEND": "Agg"}
    return subprocess.run(
        [sys.executable, str(script)], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    code = script_of(notebook) + "\nprint(sorted(runs), accepted_by_position(runs['after_last']))\n"
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("['after_last', 'eagle3', 'ngram', 'plain', 'suffix'] [0."), done.stdout


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_small_and_has_no_output(notebook: Path) -> None:
    assert notebook.stat().st_size < MAX_BYTES
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_there_is_a_notebook_and_a_wrong_one_fails(tmp_path: Path) -> None:
    assert NOTEBOOKS
    assert run("assert False, 'no'", tmp_path).returncode == 1
