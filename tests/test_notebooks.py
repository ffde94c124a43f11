"""The notebooks run, in a short form: on the zoo's model, with few tokens."""

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from notebook_outputs import with_outputs
from packages import ROOT

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
SHORTER = {'MODEL = "smollm2"': 'MODEL = "zoo"', "MAX_TOKENS = 96": "MAX_TOKENS = 12"}
MAX_BYTES = 60_000


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
def test_a_notebook_is_small_and_has_its_outputs(notebook: Path) -> None:
    assert notebook.stat().st_size < MAX_BYTES
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), (
        "scripts/notebook_outputs.py"
    )
    for cell in code:
        kinds = {output["output_type"] for output in cell["outputs"]}
        source = "".join(cell["source"])
        wanted = {"stream"} if re.search(r"\n *print\(", source) else set()
        assert kinds == wanted | ({"display_data"} if "\nplot(runs)" in source else set())
    printed, own = [output["text"] for cell in code for output in cell["outputs"] if "text" in output]
    assert [line.split()[0] for line in printed] == ["plain", "ngram", "suffix", "eagle3"]
    assert [line.split()[-1] for line in own] == ["tokens/s"]


def test_outputs_are_what_cells_print_and_draw() -> None:
    sources = [
        "first_cell = 2\n",
        "print(first_cell + 1)\n",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\n",
    ]
    notebook = {"cells": [{"cell_type": "code", "source": [source]} for source in sources]}
    notebook["cells"].insert(1, {"cell_type": "markdown", "source": ["text"]})
    first, text, second, third = with_outputs(notebook)["cells"]
    assert (first["outputs"], first["execution_count"]) == ([], 1)
    assert "outputs" not in text
    assert second["outputs"] == [{"name": "stdout", "output_type": "stream", "text": ["3\n"]}]
    [picture] = third["outputs"]
    assert base64.b64decode(picture["data"]["image/png"]).startswith(b"\x89PNG")


def test_there_is_a_notebook_and_a_wrong_one_fails(tmp_path: Path) -> None:
    assert NOTEBOOKS
    assert run("assert False, 'no'", tmp_path).returncode == 1
