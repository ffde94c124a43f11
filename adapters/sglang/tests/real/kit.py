"""`specdec check --host sglang` on this machine: PYTHON_OF_SGLANG adapters/sglang/tests/real/kit.py."""

from __future__ import annotations

import os
import sys

from engine import ENVIRONMENT

from specdec_cli.main import run

if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)
    sys.exit(run(["check", "--host", "sglang"]))
