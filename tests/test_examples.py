"""The example of a head passes its own tests; `specdec-echo` is tested in testing/tests/scaffold, with the page it is on."""

import os
import subprocess
import sys

import pytest
from packages import ROOT

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples/specdec-glance"
LEFT_OUT = "test_tokens_follow_their_q"
"""Takes as long as all others; HeadProposer draws the same way for the heads of plugins, whose tests include it."""


def test_the_head_keeps_its_promises_and_guesses() -> None:
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--noconftest", "--rootdir", str(EXAMPLE)]
    command = [sys.executable, "-m", "pytest", *options, "-k", f"not {LEFT_OUT}", str(EXAMPLE / "tests")]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(EXAMPLE)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.splitlines()[-1].split(" passed")[0].split()[-1]) >= 28
