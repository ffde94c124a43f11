"""Makes the modules of this folder importable in its tests, as when a script here runs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
