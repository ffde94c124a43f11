"""A package imports only what its own metadata names, so that its install line is enough."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packages import ROOT, Package, packages

HOSTS = {"specdec-llama-cpp": "llama_cpp", "specdec-sglang": "sglang", "specdec-vllm": "vllm"}
"""The engine in whose process a package runs, if it must be there first."""
DYNAMIC = ("import_module", "importlib.import_module", "find_spec", "importlib.util.find_spec")
PROJECTS = [*packages(), *(Package(file.parent) for file in ROOT.glob("examples/*/pyproject.toml"))]


def modules(package: Package) -> list[Path]:
    """Return the files that a package installs."""
    files = package.folder.rglob("*.py")
    return [file for file in files if not {"tests", "build"} & {*file.relative_to(package.folder).parts}]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def distributions() -> dict[str, set[str]]:
    """Return the distributions of each importable name."""
    found = {name: set(map(normal, names)) for name, names in packages_distributions().items()}
    return found | {package.source.name: {package.name} for package in packages()}


def imported(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield what a module imports, at once, lazily or for types, and whether by a call, which may be guarded."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module, False
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in DYNAMIC:
            yield from ((arg.value, True) for arg in node.args if isinstance(arg, ast.Constant))


def undeclared(file: Path, declared: set[str]) -> list[str]:
    """Return what a file imports of distributions that are not declared; by a call it may say how to install them."""
    text, wrong = file.read_text(encoding="utf-8"), []
    for module, is_called in imported(ast.parse(text)):
        top = module.partition(".")[0]
        owners = distributions().get(top, {normal(top)})
        if top in sys.stdlib_module_names or top == file.stem or owners & declared:
            continue
        if not (is_called and re.search(rf"pip install .*{normal(top)}", text)):
            wrong.append(f"{file}: {module}")
    return wrong


@pytest.mark.parametrize("package", PROJECTS, ids=lambda package: package.name)
def test_imports_are_declared(package: Package) -> None:
    lines = [*package.requirements, package.name, HOSTS.get(package.name, package.name)]
    declared = {normal(re.split(r"[^\w.-]", line)[0]) for line in lines}
    assert [line for file in modules(package) for line in undeclared(file, declared)] == []


def test_undeclared_imports_are_found(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "import os\nfrom numpy import array\n\ndef f():\n    import yaml.nodes\n\n"
        "import_module('specdec_zoo')\nfind_spec('triton')\nraise E('pip install triton')\n"
    )
    found = [line.split(": ")[1] for line in undeclared(file, {"numpy"})]
    assert found == ["yaml.nodes", "specdec_zoo"]


def without_dependencies(text: str) -> Iterator[tuple[set[str], set[str]]]:
    """Yield for each line that installs packages of ours without their dependencies those that it names, and needs."""
    by_name = {package.name: package for package in packages()}
    by_folder = {str(package.folder.relative_to(ROOT)): package.name for package in packages()}
    for line in re.findall(r"pip install --no-deps (.*)", text.replace("\\\n", "")):
        named = {by_folder.get(word, word) for word in line.split()} & set(by_name)
        yield named, {each.name for name in named for each in by_name[name].siblings()}


def test_lines_without_dependencies_are_whole() -> None:
    documents = [*ROOT.glob("docs/*.md"), *(package.folder / "README.md" for package in packages())]
    lines = [(file.name, line) for file in documents for line in without_dependencies(file.read_text())]
    assert sum(bool(named) for _, (named, _) in lines) == 4
    assert [(file, needed - named) for file, (named, needed) in lines if needed - named] == []
