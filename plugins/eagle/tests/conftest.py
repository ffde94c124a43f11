"""Lets the tests import what they share."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
for support in (HERE / "support", HERE.parents[2] / "tests" / "support"):
    if str(support) not in sys.path:
        sys.path.insert(0, str(support))
