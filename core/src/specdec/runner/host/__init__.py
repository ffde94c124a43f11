"""Compiled loops of the host path."""

from pathlib import Path

from specdec.runner.host.stale import drop_stale

_HERE = Path(__file__).parent
drop_stale(_HERE, _HERE.parents[1] / "noise")
