"""`python scripts/generate_types.py [--check]`: write `core/src/specdec/arguments.py` from the option classes.

The keys of a TypedDict are all that type checkers and editors know of `**arguments` and of a mapping, so every field of
`EngineOptions`, of the common configuration, and of the methods and samplers of official packages is repeated there.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator

from option_tables import attribute_docs, source_annotations
from packages import ROOT, packages
from pydantic import BaseModel

from specdec import EngineOptions, ProposerConfig, registry
from specdec.config import SpeculativeConfig

FILE = ROOT / "core/src/specdec/arguments.py"
HEAD = '''"""The arguments of `LLM` and the keys of `speculative_config`, for editors and type checkers.

Written by `scripts/generate_types.py` from the option classes; `make docs` brings it up to date.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

'''
WIDTH = 116
PATHS = ("model",)
"""Text that may be given as a path."""
TAKEN_FOR = {"NonNegativeInt": "int", "Path": "str | Path", "MemberConfig": "SpeculativeOptions"}
"""What may be given for a field of such a type."""


def main(arguments: list[str]) -> int:
    """Write the file, or with --check return 1 if it is not up to date."""
    if arguments not in ([], ["--check"]):
        print("usage: python scripts/generate_types.py [--check]", file=sys.stderr)
        return 2
    written = formatted(module())
    if arguments:
        return int(FILE.read_text(encoding="utf-8") != written)
    FILE.write_text(written, encoding="utf-8")
    return 0


def module() -> str:
    """Return the source of the module."""
    engine = typed_dict(
        "LLMOptions",
        "The keyword arguments of `LLM` and `AsyncLLM`; see `EngineOptions`.",
        {name: entry for name, entry in fields(EngineOptions).items() if name != "model"},
    )
    keys = fields(SpeculativeConfig)
    for owner in configurations():
        keys = fields(owner) | keys
    common = list(SpeculativeConfig.model_fields)
    order = [*common, *sorted(keys.keys() - common)]
    speculation = typed_dict(
        "SpeculativeOptions",
        "The keys of `speculative_config`: common ones, then those of the official methods and samplers. Those of another "
        "method: a subclass with its keys, or a mapping of type `Any`.",
        {name: keys[name] for name in order},
    )
    return f"{HEAD}\n{engine}\n\n{speculation}"


def configurations() -> Iterator[type[BaseModel]]:
    """Yield the configuration classes of the methods and samplers of official packages."""
    for package in packages():
        for name in sorted(package.entry_points("specdec.proposers")):
            yield registry.proposer(name).Config
        for name in sorted(package.entry_points("specdec.samplers")):
            yield registry.sampler(name).Config


def fields(owner: type) -> dict[str, tuple[str, str]]:
    """Return type and description of each field; of a proposer's class those that are its own."""
    types, docs = source_annotations(owner), attribute_docs(owner)
    if not issubclass(owner, BaseModel):
        return {name: (types[name], docs[name]) for name in types}
    inherited = ProposerConfig.model_fields if issubclass(owner, ProposerConfig) else {}
    return {
        name: (
            taken(types[name].replace("str", "Path") if name in PATHS else types[name]),
            field.description or docs.get(name, ""),
        )
        for name, field in owner.model_fields.items()
        if name not in inherited
    }


def taken(annotation: str) -> str:
    """Return the type of what may be given for a field: sequences for tuples, text for paths."""

    class Taken(ast.NodeTransformer):
        def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
            self.generic_visit(node)
            if ast.unparse(node.value) == "tuple" and isinstance(node.slice, ast.Tuple):
                return ast.Subscript(ast.Name("Sequence"), node.slice.elts[0])
            return node

        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.parse(TAKEN_FOR.get(node.id, node.id), mode="eval").body

    return ast.unparse(Taken().visit(ast.parse(annotation, mode="eval")))


def typed_dict(name: str, doc: str, entries: dict[str, tuple[str, str]]) -> str:
    """Return the source of a TypedDict all of whose keys may be left out."""
    lines = [f"class {name}(TypedDict, total=False):", quoted(doc), ""]
    for key, (annotation, description) in entries.items():
        lines += [f"    {key}: {annotation}", quoted(description)]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Return a docstring in a class."""
    words = re.sub(r"\s+", " ", text).strip()
    return textwrap.indent("\n".join(textwrap.wrap(f'"""{words}"""', WIDTH)), "    ")


def formatted(source: str) -> str:
    """Return the source as ruff formats it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FILE), "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True, cwd=ROOT).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
