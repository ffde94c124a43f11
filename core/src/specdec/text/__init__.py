"""Text and tokens: detokenizing as tokens arrive, stop strings, and text that no tokenizer can encode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.text.detokenizer import IncrementalDetokenizer
    from specdec.text.unicode import check_unicode
    from specdec.text.vocabulary_print import fingerprint

__all__ = ["IncrementalDetokenizer", "check_unicode", "fingerprint"]

__getattr__ = lazily(__name__)
