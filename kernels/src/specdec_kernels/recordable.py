"""Whether what a proposer runs on a device may be captured in graphs."""

from __future__ import annotations

from importlib.util import find_spec

from specdec.interfaces import TargetInfo


def can_record(info: TargetInfo) -> bool:
    """Return whether there are graphs and kernels to record, and the engine is not told to do without."""
    return info.may_record and info.device.type == "cuda" and find_spec("triton") is not None
