"""Code compiled by numba that the noise, the logits and the host's layers share."""

from pathlib import Path

from specdec.compiled.announce import announce
from specdec.compiled.stale import drop_stale

announce()
_HERE = Path(__file__).parent
drop_stale(_HERE, _HERE.parent / "noise", _HERE.parent / "runner" / "host")
