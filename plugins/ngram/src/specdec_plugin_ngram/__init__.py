"""Prompt lookup: draft what followed when the last few tokens occurred before, on host or device."""

from specdec_plugin_ngram.config import NgramConfig
from specdec_plugin_ngram.gpu import NgramGpuProposer
from specdec_plugin_ngram.proposer import NgramProposer

__all__ = ["NgramConfig", "NgramGpuProposer", "NgramProposer"]
