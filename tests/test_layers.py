"""The order of imports inside core and inside the runtime, and what other packages may import of core.

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
RUNTIME = ROOT / "runtime/src/specdec_runtime"
LAYERS = {
    CORE: (
    {"arguments", "config_model", "engine_options", "errors", "faces", "field_docs", "folders", "lora", "messages", "metrics", "outputs", "sampling_params", "structured_outputs", "target_facts", "text"},  # noqa: E501  one layer, one line
    {"interfaces"},
    {"adaptive", "backends", "config", "hooks", "logits", "noise", "registry", "samplers"},
    {"engine"},
    {"assembly"},
    {"frontend", "reference"},
    ),
    RUNTIME: (
        {"interfaces"},
        {"backends", "chat", "gguf", "models", "samplers", "structured_outputs"},
        {"loading", "lora", "states"},
        {"runner"},
        {"scorers"},
        {"drafting", "parallel"},
        {"hooks"},
    ),
}  # fmt: skip
"""Packages and modules directly below each of the two, lowest first: one imports from its own layer and from lower ones."""


def imports(file: Path) -> Iterator[tuple[str, str | None]]:
    """Return every module that a file imports from, with the name it takes; None for `import module`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{file}: relative import"
            yield from ((node.module, alias.name) for alias in node.names)


def part_of(root: Path, module: str, name: str | None) -> str | None:
    """Return the package or module directly below `root` that an import leads to; None outside it."""
    parts = module.split(".")
    if parts[0] != root.name:
        return None
    if len(parts) > 1:
        return parts[1]
    return name if name is not None and is_part(root, name) else None


def is_part(root: Path, name: str) -> bool:
    return (root / name).is_dir() or (root / f"{name}.py").exists()


@cache
def edges(root: Path) -> frozenset[tuple[str, str]]:
    """Return which parts of a package import which other parts."""
    found = set()
    for file in root.rglob("*.py"):
        own = file.relative_to(root).parts[0].removesuffix(".py")
        if own == "__init__":
            continue  # names are re-exported there
        found |= {
            (own, part)
            for module, name in imports(file)
            if (part := part_of(root, module, name)) not in (own, None)
        }
    return frozenset((own, part) for own, part in found if part is not None)


def layer_of(root: Path, part: str) -> int:
    (layer,) = (index for index, parts in enumerate(LAYERS[root]) if part in parts)
    return layer


def upward(root: Path, found: frozenset[tuple[str, str]]) -> set[str]:
    return {f"{own} -> {part}" for own, part in found if layer_of(root, part) > layer_of(root, own)}


def circle(root: Path, found: frozenset[tuple[str, str]]) -> list[str]:
    """Return the parts of a circle, without the arrows that already count as upward; empty if there is none."""
    graph: dict[str, set[str]] = {}
    for own, part in found:
        if layer_of(root, part) <= layer_of(root, own):
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


@pytest.mark.parametrize("root", LAYERS, ids=lambda root: root.name)
def test_every_part_has_a_layer(root: Path) -> None:
    parts = {
        f.name.removesuffix(".py")
        for f in root.iterdir()
        if f.suffix == ".py" or (f / "__init__.py").exists()
    }
    assert parts - {"__init__"} <= set().union(*LAYERS[root])


@pytest.mark.parametrize("root", LAYERS, ids=lambda root: root.name)
def test_imports_lead_down(root: Path) -> None:
    assert upward(root, edges(root)) == set()


@pytest.mark.parametrize("root", LAYERS, ids=lambda root: root.name)
def test_there_is_no_circle(root: Path) -> None:
    assert circle(root, edges(root)) == []


def test_other_packages_import_public_names_only() -> None:
    files = [file for package in packages()[1:] for file in package.source.rglob("*.py")]
    wrong = [line for file in files for line in private_imports(file)]
    assert wrong == []


def lazy_names() -> Iterator[tuple[Path, str]]:
    """Yield the names of packages that are imported on first use."""
    for package in packages():
        for file in package.source.rglob("__init__.py"):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            if any(
                isinstance(node, ast.Call) and ast.unparse(node.func) == "lazily" for node in ast.walk(tree)
            ):
                (names,) = (
                    ast.literal_eval(n.value) for n in tree.body if ast.unparse(n).startswith("__all__")
                )  # type: ignore[attr-defined]
                yield from ((file.parent, name) for name in names)


def test_lazy_names_are_not_those_of_modules() -> None:
    """Else a name would be the module, once anything has imported that."""
    names = list(lazy_names())
    assert len(names) > 100
    assert not [
        name for folder, name in names if (folder / f"{name}.py").exists() or (folder / name).is_dir()
    ]


def test_the_rules_can_fail(tmp_path: Path) -> None:
    both = frozenset({("interfaces", "engine"), ("engine", "interfaces")})
    assert upward(CORE, both) == {"interfaces -> engine"}
    assert circle(CORE, frozenset({("config", "registry"), ("registry", "config")}))
    file = ROOT / "tests/test_layers.py"
    assert part_of(CORE, "specdec", "engine") == part_of(CORE, "specdec.engine.step", "Row") == "engine"
    assert part_of(CORE, "specdec_runtime.runner.sdpa", "SdpaAttention") is None
    assert private_imports(file) == []
    with pytest.raises(ValueError, match="unpack"):
        layer_of(CORE, "unknown")


def test_the_runtime_finds_backends_by_their_entry_points() -> None:
    files = RUNTIME.rglob("*.py")
    assert [
        file for file in files if any(module.startswith("specdec_kernels") for module, _ in imports(file))
    ] == []


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
