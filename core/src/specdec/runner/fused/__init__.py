"""Decoder layers of a known structure, run as a few fused operations."""

from specdec.runner.fused.model import FusedModel, fuse

__all__ = ["FusedModel", "fuse"]
