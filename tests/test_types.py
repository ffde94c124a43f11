"""What editors and type checkers see of the arguments: names, types, and misspelt ones."""

import re
from pathlib import Path

import generate_types
from mypy import api

from specdec import LLMOptions, SpeculativeOptions

GOOD = """
from pathlib import Path
from typing import Any
from specdec import LLM, AsyncLLM, SamplingParams, SpeculativeOptions

class Mine(SpeculativeOptions):
    max_distance: int

mine: Mine = {"method": "./mine.py:Mine", "max_distance": 3}
ready: Any = {"method": "theirs", "their_key": 1}
LLM("zoo", dtype="float32", max_model_len=64, speculative_config={"method": "suffix", "use_tree_spec": True})
LLM("zoo", speculative_config={"num_speculative_tokens_per_batch_size": [[1, 4, 5]], "proposers": [{"model": "zoo"}]})
LLM("zoo", speculative_config=mine)
LLM("zoo", speculative_config=ready)
AsyncLLM("zoo", speculative_config=Path("config.yaml"))
LLM("zoo").generate("x", SamplingParams(temperature=0, stop=["a"]).clone(max_tokens=3))
"""
WRONG = {
    'LLM("zoo", max_modl_len=64)': 'Unexpected keyword argument "max_modl_len"',
    'AsyncLLM("zoo", dtpye="auto")': 'Unexpected keyword argument "dtpye"',
    'LLM("zoo", seed="one")': 'Argument "seed" to "LLM" has incompatible type "str"',
    'LLM("zoo", speculative_config={"metod": "ngram"})': 'Argument "speculative_config" to "LLM"',
    'config: SpeculativeOptions = {"metod": "ngram"}': 'Extra key "metod" for TypedDict "SpeculativeOptions"',
    'other: SpeculativeOptions = {"adaptive": "yes"}': 'expression has type "str", TypedDict item "adaptive"',
    "SamplingParams(temprature=0.5)": 'Unexpected keyword argument "temprature"',
}
SETTINGS = """
[mypy]
strict = True
[mypy-torch.*,transformers.*,numpy.*,rich.*,jinja2.*,tokenizers.*,safetensors.*,pluggy.*]
follow_imports = skip
"""
"""Other libraries do not matter here, and reading them takes half a minute."""


def checked(folder: Path, code: str) -> list[str]:
    """Return the errors of mypy in a script, as `line: message`."""
    (folder / "mypy.ini").write_text(SETTINGS)
    (folder / "script.py").write_text(code)
    options = ["--config-file", str(folder / "mypy.ini"), "--cache-dir", str(folder / "cache")]
    output = api.run([*options, str(folder / "script.py")])[0]
    return [f"{line}: {message}" for line, message in re.findall(r"script\.py:(\d+): error: (.*)", output)]


def test_types_are_up_to_date() -> None:
    assert generate_types.main(["--check"]) == 0


def test_a_field_that_is_new_is_noticed(monkeypatch) -> None:
    assert {"max_model_len", "deterministic"} <= LLMOptions.__annotations__.keys()
    assert {"method", "prompt_lookup_max", "posterior_alpha"} <= SpeculativeOptions.__annotations__.keys()
    text = generate_types.FILE.read_text()
    monkeypatch.setattr(generate_types, "module", lambda: text.replace("    seed: int | None\n", ""))
    assert generate_types.main(["--check"]) == 1


def test_mypy_sees_misspelt_names_and_wrong_types(tmp_path) -> None:
    lines = GOOD.splitlines()
    found = checked(tmp_path, "\n".join([*lines, *WRONG]))
    assert len(found) == len(WRONG), found
    for number, (error, message) in enumerate(zip(found, WRONG.values(), strict=True), len(lines) + 1):
        assert error.startswith(f"{number}: "), found
        assert message in error
