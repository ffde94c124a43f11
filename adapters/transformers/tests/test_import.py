"""What must be set before torch is loaded is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WATCH = """
import os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("GOMP_SPINCOUNT" in os.environ)

sys.meta_path.insert(0, Watch())
import specdec_transformers
"""


@pytest.mark.slow
def test_threads_are_told_how_to_wait_before_torch_is_loaded() -> None:
    unset = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-c", WATCH], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
