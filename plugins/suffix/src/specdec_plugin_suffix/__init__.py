"""Suffix decoding: draft what followed the same tokens in the request's text or in earlier responses."""

from specdec_plugin_suffix.config import SuffixConfig
from specdec_plugin_suffix.proposer import SuffixProposer

__all__ = ["SuffixConfig", "SuffixProposer"]
