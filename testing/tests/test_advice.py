"""What to fix is about the cause: an exception of the plugin, or a draft that is none."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location

import pluggy
import pytest

from specdec_testing.support.origin import origin
from specdec_testing.support.verdicts import advice


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("propose returned NoneType, not a Draft", "what propose returns, see specdec.interfaces.Draft"),
        ("Draft.token_ids is float64, not int64", "what propose returns, see specdec.interfaces.Draft"),
        ("propose raised KeyError: 42 [mine.py:16]", "what mine.py:16 raises"),
        ("row 0 has 5 nodes, its cap is 4", "cut at max_nodes"),
    ],
)
def test_the_cause_comes_first(reason: str, expected: str) -> None:
    assert advice(reason, "cut at max_nodes").startswith(expected)


PLUGIN = """import pluggy

@pluggy.HookimplMarker("made_up")
def load():
    raise RuntimeError("no weights here")
"""


def test_an_exception_is_not_blamed_on_the_frames_of_pluggy_or_pytest(tmp_path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN)
    spec = spec_from_file_location("mine", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    manager = pluggy.PluginManager("made_up")
    manager.register(module)
    with pytest.raises(RuntimeError) as raised:
        manager.hook.load()
    error = raised.value
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_next is not None
    below_this_test = error.with_traceback(error.__traceback__.tb_next)
    assert origin(below_this_test) == "mine.py:5"
