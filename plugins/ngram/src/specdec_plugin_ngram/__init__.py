"""Prompt lookup: drafts the tokens that followed an earlier occurrence of the last few tokens, on CPU or device."""

from specdec_plugin_ngram.config import NgramConfig
from specdec_plugin_ngram.proposer import NgramProposer

__all__ = ["NgramConfig", "NgramProposer"]
