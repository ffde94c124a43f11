"""What the package exports, and that it costs no import of Triton."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from specdec_kernels import triton as operations

SOURCE = Path(operations.__file__).parent
OPS = sorted(folder.parent.name for folder in SOURCE.glob("*/kernel.py"))


def test_every_public_name_of_every_operation_is_exported() -> None:
    public = {name for op in OPS for name in import_module(f"specdec_kernels.triton.{op}").__all__}
    others = {"Backend", "ChainDraft", "PathVerdict", "use_backend"}
    assert set(operations.__all__) == public | others
    assert all(hasattr(operations, name) for name in operations.__all__)


def test_an_operation_called_as_its_folder_is_the_function_whatever_was_imported_first() -> None:
    same = [op for op in OPS if op in operations.__all__]
    assert len(same) == len(OPS) - 1  # noise is a folder of two
    code = "\n".join(
        [
            "import sys",
            *(f"import specdec_kernels.triton.{op}.reference" for op in same),
            *(f"from specdec_kernels.triton.{op} import {op}" for op in reversed(same)),
            "import specdec_kernels.triton",
            *(f"assert specdec_kernels.triton.{op} is {op} and callable({op})" for op in same),
            "assert 'triton' not in sys.modules",
        ]
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("op", OPS)
def test_operations_are_built_alike(op: str) -> None:
    files = {file.name for file in (SOURCE / op).glob("*.py")}
    assert files >= {"__init__.py", "kernel.py"}
    assert "reference.py" in files or op == "noise"  # whose reference is specdec.noise


def test_every_operation_is_in_the_readme() -> None:
    readme = (SOURCE.parents[2] / "README.md").read_text()
    assert [op for op in OPS if f"| `{op}` |" not in readme and op != "noise"] == []
