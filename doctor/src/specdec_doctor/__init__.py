"""The commands `doctor` and `plugins`: what is installed, and whether it loads."""

from specdec_doctor.probe import ProbeResult

__all__ = ["ProbeResult"]
