"""What the tests of the adapter share: the stub of vLLM."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from stub_engine import stub_vllm  # noqa: F401  a fixture of every test here
from stub_v2 import v2_module  # noqa: F401
