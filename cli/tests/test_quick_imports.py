import subprocess
import sys

LOAD = """
import sys
from specdec import registry
from specdec_cli.probe import answer_of
infos = [info for info in registry.installed() if info.distribution.startswith("specdec-")]
for info in infos:
    if info.group == registry.Group.COMMANDS:
        assert answer_of(info.group, info.name)["error"] is None, info
        assert "torch" not in sys.modules, f"{info} imports torch before it runs"
from specdec import LLM, AsyncLLM, SamplingParams
assert "torch" not in sys.modules, "wrong arguments are told of before torch is imported"
for info in infos:
    assert answer_of(info.group, info.name)["error"] is None, info
    for module in ("transformers.modeling_utils", "transformers.quantizers.auto"):
        assert module not in sys.modules, f"{info} imports {module} before there is a model"
"""


def test_commands_load_without_torch_and_plugins_without_models() -> None:
    """Else `specdec COMMAND --help`, and a program's imports, take seconds, and `specdec doctor` twice as long."""
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
