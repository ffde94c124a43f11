"""`help()` of the classes that plugin authors read shows every field with its description."""

from __future__ import annotations

import inspect
import pydoc
import re
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum

import pytest

import specdec
from specdec import interfaces
from specdec.field_docs import show_fields

READ = (
    "TargetInfo",
    "TargetHandle",
    "ProposeBatch",
    "Draft",
    "Scores",
    "Verdict",
    "VerifyBatch",
    "Proposer",
)
SHOWN = [
    found
    for found in {getattr(module, name) for module in (specdec, interfaces) for name in module.__all__}
    if isinstance(found, type) and (is_dataclass(found) or issubclass(found, Enum))
]


@pytest.mark.parametrize("shown", sorted(SHOWN, key=lambda cls: cls.__name__), ids=lambda cls: cls.__name__)
def test_help_names_every_field(shown: type) -> None:
    text = pydoc.plain(pydoc.render_doc(shown))
    attributes = text[text.index("Attributes:") :]
    names = [field.name for field in fields(shown)] if is_dataclass(shown) else list(shown.__members__)
    assert [
        name for name in names if not name.startswith("_") and f" {name} " not in attributes.replace(":", " ")
    ] == []


@pytest.mark.parametrize("name", READ)
def test_every_field_of_what_authors_read_is_described(name: str) -> None:
    text = inspect.getdoc(getattr(interfaces, name))
    assert text is not None
    lines = text.partition("Attributes:")[2].splitlines()
    assert [line for line in lines if re.fullmatch(r"    \w+ \(.*\)", line)] == []


def test_descriptions_are_those_of_the_source() -> None:
    text = " ".join((specdec.TargetInfo.__doc__ or "").split())
    assert text.startswith(
        "Facts about the loaded target. Attributes: vocab_size (int): Number of logits per row. "
    )
    assert "tokenizer itself is `TargetHandle.tokenizer`" in text
    assert "TREE: May return drafts with `parents`" in " ".join((specdec.Capability.__doc__ or "").split())


@dataclass
class Base:
    """A base."""

    first: int
    """The first."""
    _hidden: int = 0
    """Of no interest."""


@dataclass
class Derived(Base):
    """Derived."""

    second: str = "b"
    third = 3

    def method(self) -> None:
        """Do nothing."""


def test_fields_come_from_bases_too_and_without_source_there_is_the_docstring() -> None:
    show_fields(Base, Derived)
    assert Derived.__doc__ == "Derived.\n\nAttributes:\n    first (int): The first.\n    second (str = 'b')"
    assert Derived(1).__doc__ == Derived.__doc__
    unknown = type("Unknown", (), {"__doc__": "Made here."})
    show_fields(unknown)
    assert unknown.__doc__ == "Made here."
