"""The order of imports inside core, and what other packages may import of it.

Every import counts, those under `TYPE_CHECKING` and inside functions too: they are what a reader follows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from packages import ROOT, packages

CORE = ROOT / "core/src/specdec"
LAYERS = (
    {"arguments", "engine_options", "errors", "faces", "field_docs", "folders", "keys", "messages", "metrics", "outputs", "sampling_params", "structured_outputs", "target_facts", "text"},  # noqa: E501  one layer, one line
    {"interfaces"},
    {"adaptive", "backends", "config", "hooks", "logits", "models", "noise", "registry", "runner", "samplers"},
    {"loading", "scorers"},
    {"engine"},
    {"assembly"},
    {"frontend", "reference"},
)  # fmt: skip
"""Packages and modules directly below `specdec`, lowest first: each imports from its own layer and from lower ones."""


def imports(file: Path) -> Iterator[tuple[str, str | None]]:
    """Return every module that a file imports from, with the name it takes; None for `import module`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{file}: relative import"
            yield from ((node.module, alias.name) for alias in node.names)


def part_of(module: str, name: str | None) -> str | None:
    """Return the package or module directly below `specdec` that an import leads to; None outside core."""
    parts = module.split(".")
    if parts[0] != "specdec":
        return None
    if len(parts) > 1:
        return parts[1]
    return name if name is not None and is_part(name) else None


def is_part(name: str) -> bool:
    return (CORE / name).is_dir() or (CORE / f"{name}.py").exists()


@cache
def edges() -> frozenset[tuple[str, str]]:
    """Return which parts of core import which other parts."""
    found = set()
    for file in CORE.rglob("*.py"):
        own = file.relative_to(CORE).parts[0].removesuffix(".py")
        if own == "__init__":
            continue  # names are re-exported there
        found |= {
            (own, part)
            for module, name in imports(file)
            if (part := part_of(module, name)) not in (own, None)
        }
    return frozenset((own, part) for own, part in found if part is not None)


def layer_of(part: str) -> int:
    (layer,) = (index for index, parts in enumerate(LAYERS) if part in parts)
    return layer


def upward(found: frozenset[tuple[str, str]]) -> set[str]:
    return {f"{own} -> {part}" for own, part in found if layer_of(part) > layer_of(own)}


def circle(found: frozenset[tuple[str, str]]) -> list[str]:
    """Return the parts of a circle, without the arrows that already count as upward; empty if there is none."""
    graph: dict[str, set[str]] = {}
    for own, part in found:
        if layer_of(part) <= layer_of(own):
            graph.setdefault(own, set()).add(part)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@cache
def public_names() -> dict[str, set[str]]:
    """Return the names in `__all__` of core, its packages and its modules."""
    found = {}
    for file in CORE.rglob("*.py"):
        parts = file.relative_to(CORE).with_suffix("").parts
        module = ".".join(("specdec", *(part for part in parts if part != "__init__")))
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                found[module] = set(ast.literal_eval(node.value))
    return found


def private_imports(file: Path) -> list[str]:
    """Return what a file outside core takes from private modules of core."""
    public = public_names()
    wrong = []
    for module, name in imports(file):
        if module.split(".")[0] != "specdec":
            continue
        is_package = name is not None and f"{module}.{name}" in public
        if not is_package and (name is None or name not in public.get(module, ())) and module != "specdec":
            wrong.append(f"{file.relative_to(ROOT)}: {module}{'' if name is None else '.' + name}")
    return wrong


def test_every_part_of_core_has_a_layer() -> None:
    parts = {
        f.name.removesuffix(".py")
        for f in CORE.iterdir()
        if f.suffix == ".py" or (f / "__init__.py").exists()
    }
    assert parts - {"__init__"} <= set().union(*LAYERS)


def test_imports_lead_down() -> None:
    assert upward(edges()) == set()


def test_there_is_no_circle() -> None:
    assert circle(edges()) == []


def test_other_packages_import_public_names_only() -> None:
    files = [file for package in packages()[1:] for file in package.source.rglob("*.py")]
    wrong = [line for file in files for line in private_imports(file)]
    assert wrong == []


def test_the_rules_can_fail(tmp_path: Path) -> None:
    assert upward(frozenset({("interfaces", "runner"), ("runner", "interfaces")})) == {"interfaces -> runner"}
    assert circle(frozenset({("config", "registry"), ("registry", "config")}))
    file = ROOT / "tests/test_layers.py"
    assert part_of("specdec", "runner") == part_of("specdec.runner.sdpa", "SdpaAttention") == "runner"
    assert private_imports(file) == []
    with pytest.raises(ValueError, match="unpack"):
        layer_of("unknown")


BACKENDS_NEED = {"numba", "llvmlite", "triton"}
"""What only a package of backends may import."""


def test_core_imports_no_backend_and_no_other_package_of_specdec() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}: {module}"
        for file in CORE.rglob("*.py")
        for module, _ in imports(file)
        if (top := module.split(".")[0]) in BACKENDS_NEED or top.startswith("specdec_")
    ]
    assert wrong == []
