"""Classes without packaging: a file, or a dotted path."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec import PluginError, registry

SOURCE = """
from dataclasses import dataclass
from specdec import Draft, Proposer

@dataclass
class State:
    count: int = 0

class Mine(Proposer):
    name = "mine"
    def propose(self, batch):
        return Draft.empty(batch.batch_size)

class Unfinished(Proposer):
    name = "unfinished"

"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with proposers in the current folder, which is on `sys.path` too."""
    path = tmp_path / "my_proposer.py"
    path.write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return path


@pytest.mark.parametrize("name", ["./my_proposer.py:Mine", "my_proposer.py:Mine", "my_proposer.Mine"])
def test_a_class_is_found_by_its_path(file: Path, name: str) -> None:
    assert registry.proposer(name).name == "mine"
    assert registry.proposer(str(file) + ":Mine").name == "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./none.py:Mine", "'./none.py:Mine': there is no file "),
        ("./my_proposer.py:Me", "there is no class 'Me'; classes defined there: Mine, State, Unfinished"),
        ("./my_proposer.py", "names no class: write ./my_proposer.py:ClassName"),
        ("./my_proposer.py:State", "State must be a subclass of specdec.interfaces.Proposer"),
        ("./my_proposer.py:Unfinished", "class Unfinished is abstract: implement propose"),
        ("no_such_module.Mine", "cannot import 'no_such_module': ModuleNotFoundError"),
        ("my_proposer.Me", "there is no class 'Me'"),
    ],
)
@pytest.mark.usefixtures("file")
def test_a_path_that_leads_nowhere(name: str, message: str) -> None:
    with pytest.raises(PluginError) as caught:
        registry.proposer(name)
    assert message in str(caught.value)


def test_a_file_that_fails_says_why_and_may_be_mended(file: Path) -> None:
    broken = file.with_name("broken.py")
    broken.write_text("1 / 0")
    with pytest.raises(PluginError, match=r"broken\.py cannot be run: ZeroDivisionError: division by zero"):
        registry.proposer(f"{broken}:Mine")
    broken.write_text(file.read_text())
    assert registry.proposer(f"{broken}:Mine").name == "mine"


def test_a_class_without_a_name_is_told(file: Path) -> None:
    file.with_name("nameless.py").write_text(file.read_text().replace('name = "mine"', "pass"))
    with pytest.raises(PluginError, match="class Mine has no class attribute 'name'"):
        registry.proposer("./nameless.py:Mine")
