"""What the tests of the adapter share: the stub of vLLM, and the proposers of the repository's tests."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parents[2] / "tests" / "support"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from stub_engine import stub_vllm  # noqa: F401  a fixture of every test here
