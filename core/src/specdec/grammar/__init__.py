"""Structured outputs: grammars that constrain a sample's text, through llguidance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.grammar.schema import check_schema as check_schema
    from specdec.grammar.schema import supported_part as supported_part
    from specdec.grammar.trial import deadline as deadline

__all__ = ["check_schema", "deadline", "supported_part"]

__getattr__ = lazily(__name__, {"check_schema": "schema", "deadline": "trial", "supported_part": "schema"})
