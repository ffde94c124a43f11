"""`specdec check --host vllm` on this machine, with asynchronous scheduling: PYTHON_OF_VLLM .../kit.py [--runner v1]."""

from __future__ import annotations

import os
import subprocess
import sys

from identity import ENVIRONMENT, V1, V2

CHECK = """
import sys, os
if os.environ["VLLM_USE_V2_MODEL_RUNNER"] == "1":
    import v2_on_cpu
    v2_on_cpu.prepare()
from specdec_cli.main import run
if __name__ == "__main__":
    sys.exit(run(["check", "--host", "vllm"]))
"""


def main() -> int:
    environment = {name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}
    environment |= (V1 if "v1" in sys.argv else V2) | {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
    return subprocess.run([sys.executable, "-c", CHECK], env=os.environ | environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
