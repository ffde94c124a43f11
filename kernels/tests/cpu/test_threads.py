"""Compiled loops beside installed packages whose metadata cannot be read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

AVAILABLE = """
import sys
from specdec_kernels.cpu.compiled.threads import is_available  # imports torch, which reads all metadata too

sys.path.insert(0, sys.argv[1])
print(is_available(), "extension" in sys.modules and sys.modules["extension"].is_made)
"""


@pytest.mark.parametrize("entry_points", [b"[other]\nx = caf\xe9\n", b"[other]\nx\n"])
@pytest.mark.sampled(1, slow=1)
def test_a_broken_package_costs_only_itself(tmp_path: Path, entry_points: bytes) -> None:
    (tmp_path / "extension.py").write_text(
        "is_made = False\ndef make():\n    global is_made\n    is_made = True\n"
    )
    sound = b"[numba_extensions]\ninit = extension:make\n"
    for name, content in (("broken", entry_points), ("sound", sound)):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", AVAILABLE, str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["True", "True"]
    assert "broken-1.0.dist-info are left out" in done.stderr
    assert "sound-1.0" not in done.stderr


THREADS = """
import torch
from specdec_kernels.cpu.compiled.threads import is_available

torch.set_num_threads(3)
assert is_available()
import numba

print(torch.get_num_threads(), numba.get_num_threads() <= 3)
"""


@pytest.mark.slow
def test_torch_keeps_its_number_of_threads() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=120, check=True, env=environment,
    )  # fmt: skip
    assert done.stdout.split() == ["3", "True"]
