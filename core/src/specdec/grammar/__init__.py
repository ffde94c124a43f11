"""Structured outputs: grammars that constrain a sample's text, through xgrammar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.grammar.reference import resolved as resolved
    from specdec.grammar.rewriting import marked_string as marked_string
    from specdec.grammar.schema import JSON_TYPES as JSON_TYPES
    from specdec.grammar.schema import check_schema as check_schema
    from specdec.grammar.schema import supported_part as supported_part
    from specdec.grammar.trial import deadline as deadline

__all__ = [
    "JSON_TYPES",
    "check_schema",
    "deadline",
    "marked_string",
    "resolved",
    "supported_part",
]

__getattr__ = lazily(
    __name__,
    {
        "JSON_TYPES": "schema",
        "check_schema": "schema",
        "deadline": "trial",
        "marked_string": "rewriting",
        "resolved": "reference",
        "supported_part": "schema",
    },
)
