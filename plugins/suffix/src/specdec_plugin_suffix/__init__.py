"""Suffix decoding: drafts the tokens that followed the same suffix in the request's text or in earlier responses.

Names are loaded on first use, so the command can show its options without importing torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec_plugin_suffix.config import SuffixConfig
    from specdec_plugin_suffix.proposer import SuffixProposer

__all__ = ["SuffixConfig", "SuffixProposer"]


__getattr__ = lazily(__name__)
