"""The rules of the house that a machine can hold. Every rule also proves that it can fail, on a small bad example."""

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml
from bump import bumped
from mutants import read_faults
from packages import ROOT, Package, packages

MAX_LINES = 400
MAX_KERNEL_LINES = 600
MAX_MEDIAN_LINES = 120
FOLDERS = (
    "adapters",
    "core",
    "cli",
    "kernels",
    "plugins",
    "runtime",
    "server",
    "testing",
    "train",
    "zoo",
    "tests",
    "examples",
    "benchmarks",
    "scripts",
)
CORE = ROOT / "core/src/specdec"
ALSO_ORDINARY_WORDS = {
    "auto": "a value of many options",
    "mlp": "a part of every transformer layer",
    "custom_class": "not a method",
    "suffix": "of a path",
    "self": "the instance of every method",
}


def python_files() -> list[Path]:
    found = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    skipped = ("build", "__pycache__", "dist")
    files = [
        f for f in found if not any(p.startswith(".") or p in skipped for p in f.relative_to(ROOT).parts)
    ]
    files.remove(Path(__file__))  # it quotes what it forbids
    return sorted([*files, ROOT / "conftest.py"])


def source_files() -> list[Path]:
    return [file for file in python_files() if any(package.source in file.parents for package in packages())]


def method_names() -> list[str]:
    methods = json.loads((CORE / "methods.json").read_text())["methods"]
    spellings = {
        name for key, m in methods.items() for name in (key, *m.get("aliases", []), *m.get("old_names", []))
    }
    return sorted(spellings - set(ALSO_ORDINARY_WORDS), key=len, reverse=True)


def functions(text: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def lines_matching(pattern: str, text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if re.search(pattern, line)]


def too_long(text: str) -> list[str]:
    limit = MAX_KERNEL_LINES if "@triton.jit" in text else MAX_LINES
    count = len(text.splitlines())
    return [f"{count} lines, at most {limit}: the file holds two nouns"] if count > limit else []


def names_a_method(text: str) -> list[str]:
    """Identifiers, strings, docstrings and comments alike; `EagleCache` and `is_eagle` name one too."""
    names = "|".join(map(re.escape, method_names()))
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    return lines_matching(rf"(?<![a-z0-9])(?:{names})(?![a-z0-9])", words)


def unannotated(text: str) -> list[str]:
    wrong = []
    for function in functions(text):
        a = function.args
        given = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
        missing = [arg.arg for arg in given if arg.annotation is None and arg.arg not in ("self", "cls")]
        if missing or function.returns is None:
            wrong.append(
                f"{function.name}: {', '.join([*missing, *(['return'] * (function.returns is None))])}"
            )
    return wrong


def undocumented(text: str) -> list[str]:
    """Modules, and the public classes and functions of modules and classes."""
    module = ast.parse(text)
    wrong = [] if ast.get_docstring(module) else ["the module"]
    scopes: list[ast.Module | ast.ClassDef] = [module]
    while scopes:
        for node in scopes.pop().body:
            if not isinstance(
                node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            ) or node.name.startswith("_"):
                continue
            is_overload = any(ast.unparse(d).split(".")[-1] == "overload" for d in node.decorator_list)
            if not ast.get_docstring(node) and not is_overload:
                wrong.append(node.name)
            if isinstance(node, ast.ClassDef):
                scopes.append(node)
    return wrong


def suppresses_everything(text: str) -> list[str]:
    return lines_matching(
        r"#\s*(?:noqa(?!: ?[A-Z]+[0-9]+)|type: ?ignore(?!\[[a-z-]+)|ruff: ?noqa(?!: ?[A-Z]+[0-9]+))", text
    )


def to_do_without_issue(text: str) -> list[str]:
    return lines_matching(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b(?!\(#\d+\))", text)


def has_banner(text: str) -> list[str]:
    return lines_matching(r"^\s*#\s*(?:[-=*#~_+]{4,}|[^\x00-\x7f])", text)


def unsorted_exports(text: str) -> list[str]:
    """`__all__` of a package: constants, classes, then all else, each in alphabetical order, as ruff sorts it."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            order = sorted(set(names), key=lambda n: (0 if n.isupper() else 1 if n[0].isupper() else 2, n))
            return [] if names == order else [f"__all__ should be {order}"]
    return ["there is no __all__"]


def has_tool_tables(text: str) -> list[str]:
    return [t for t in re.findall(r"^\[\[?tool\.([^\].]+)", text, re.M) if t != "setuptools"]


def has_other_licence(text: str) -> list[str]:
    return [] if re.search(r'^license = "Apache-2\.0', text, re.M) else ["license is not Apache-2.0"]


def package_inits() -> list[Path]:
    return [package.source / "__init__.py" for package in packages()]


def pyprojects() -> list[Path]:
    return [package.folder / "pyproject.toml" for package in packages()]


def core_files() -> list[Path]:
    typed = (
        CORE / "arguments.py"
    )  # like methods.json data about published methods: generated from their options
    return sorted(set(CORE.rglob("*.py")) - {typed})


Rule = Callable[[str], list[str]]
RULES: dict[Rule, tuple[Callable[[], list[Path]], list[str], str]] = {
    too_long: (
        python_files,
        ["x = 1\n" * 401, "@triton.jit\n" + "x = 1\n" * 600],
        "@triton.jit\n" + "x = 1\n" * 599,
    ),
    names_a_method: (
        core_files,
        [
            'if method == "eagle":',
            "is_medusa = 1",
            "class NgramCache:",
            "# for mtp only",
            "def eagle3_head():",
        ],
        'path.suffix; beagle = "programs"; layer.mlp',
    ),
    unannotated: (
        source_files,
        [
            "def f(a) -> int: ...",
            "def f(a: int): ...",
            "async def f(*, a) -> None: ...",
            "def f(**k) -> None: ...",
        ],
        "class A:\n    def f(self, *a: int, b: int = 1, **k: int) -> None: ...",
    ),
    undocumented: (
        source_files,
        [
            "x = 1",
            '"""M."""\ndef f(): ...',
            '"""M."""\nclass A: ...',
            '"""M."""\nclass A:\n    """A."""\n    def f(self): ...',
        ],
        '"""M."""\nclass _A:\n    def f(self): ...\ndef g():\n    """G."""\n    def h(): ...',
    ),
    suppresses_everything: (
        python_files,
        ["import a  # noqa", "import a  # type: ignore", "# ruff: noqa", "a  # noqa: because"],
        "import a  # noqa: F401\nx = 1  # type: ignore[assignment]  # a reason",
    ),
    to_do_without_issue: (python_files, ["# TODO: later", "# FIXME"], "# TODO(#12): later\nTODOS = 1"),
    has_banner: (
        python_files,
        ["# -----", "    # ==== here ====", "# \u2500\u2500\u2500"],
        "# - a point\n# 3 - 2 = 1\nx = 1  # -- so",
    ),
    unsorted_exports: (
        package_inits,
        ['__all__ = ["b", "a"]', '__all__ = ["a", "B"]', "x = 1"],
        '__all__ = ["API", "B", "a"]',
    ),
    has_tool_tables: (
        pyprojects,
        ["[tool.ruff]\n", "[tool.pytest.ini_options]\n", "[[tool.mypy.overrides]]\n"],
        "[tool.setuptools.packages.find]\n",
    ),
    has_other_licence: (
        pyprojects,
        ['license = "MIT"\n', "[project]\n"],
        'license = "Apache-2.0 AND PSF-2.0"\n',
    ),
}
"""Rules: the files they hold for, bad examples that must be found, and a good one that must not."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: Rule) -> None:
    files = RULES[rule][0]()
    assert files
    wrong = {
        str(file.relative_to(ROOT)): found
        for file in files
        if (found := rule(file.read_text(encoding="utf-8")))
    }
    assert wrong == {}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_can_fail(rule: Rule) -> None:
    _, bad, good = RULES[rule]
    assert [text for text in bad if not rule(text)] == []
    assert rule(good) == []


def test_files_are_short(record_property: Callable[[str, object], None]) -> None:
    typical = median(len(file.read_text(encoding="utf-8").splitlines()) for file in source_files())
    record_property("median_lines", typical)
    assert typical <= MAX_MEDIAN_LINES


def wrong_versions(versions: dict[str, str], requirements: dict[str, list[str]]) -> list[str]:
    """Versions that differ between packages, and siblings that are not pinned to theirs."""
    wrong = [f"{name} is {v}" for name, v in versions.items() if v != versions["specdec-core"]]
    for name, lines in requirements.items():
        for line in lines:
            sibling = re.split(r"[\s\[=<>!~;]", line)[0]
            pin = re.sub(r"\[.*?\]", "", line).split(";")[0].strip()
            if sibling in versions and pin != f"{sibling}=={versions[sibling]}":
                wrong.append(f"{name} requires {line!r}")
    return wrong


def test_every_listed_fault_can_be_planted() -> None:
    """`scripts/mutants.py` says it too, but takes half an hour."""
    faults = read_faults()
    assert len(faults) > 100
    for fault in faults:
        fault.mutated((ROOT / fault.file).read_text(encoding="utf-8"))
        assert fault.tests
        assert all((ROOT / test.partition("::")[0]).exists() for test in fault.tests), fault.name


def test_versions_are_equal_and_siblings_pinned() -> None:
    found = packages()
    assert wrong_versions({p.name: p.version for p in found}, {p.name: p.requirements for p in found}) == []
    assert f'__version__ = "{found[0].version}"' in (CORE / "__init__.py").read_text()
    assert f"\nversion: {found[0].version}\n" in (ROOT / "CITATION.cff").read_text()


def test_wrong_versions_are_found() -> None:
    versions = {"specdec-core": "0.1.0", "specdec-x": "0.1.0"}
    assert wrong_versions(versions, {"specdec-x": ["specdec-core==0.1.0", "torch>=2"]}) == []
    assert wrong_versions(versions | {"specdec-x": "0.1.1"}, {}) == ["specdec-x is 0.1.1"]
    for line in ("specdec-core", "specdec-core>=0.1.0", "specdec-core==0.1.1", "specdec-core[x]~=0.1.0"):
        assert wrong_versions(versions, {"specdec-x": [line]})


def test_bump_moves_versions_and_pins_alone() -> None:
    text = (
        'version = "0.1.0"\ndependencies = ["specdec-core==0.1.0", "specdec-core-x==0.1.0", "torch==0.1.0"]\n'
    )
    expected = text.replace('n = "0.1.0"', 'n = "0.2.0"').replace("core==0.1.0", "core==0.2.0")
    assert bumped(text, ["specdec-core", "specdec"], "0.2.0") == expected
    assert bumped('__version__ = "0.1.0"\n', ["specdec-core"], "1.0.0rc1") == '__version__ = "1.0.0rc1"\n'
    citation = "cff-version: 1.2.0\nversion: 0.1.0\n"
    assert bumped(citation, ["specdec-core"], "0.2.0") == citation.replace("0.1.0", "0.2.0")


def wrong_form(form: dict[str, Any]) -> list[str]:
    """What GitHub would not take of an issue form."""
    wrong = [f"no {key}" for key in ("name", "description", "body") if not form.get(key)]
    fields = [field for field in form.get("body", []) if field["type"] != "markdown"]
    ids = [field.get("id") for field in fields]
    if len(set(ids)) != len(ids) or not all(re.fullmatch(r"[\w-]+", str(name)) for name in ids):
        wrong.append(f"ids {ids}")
    return wrong + [f"{field['id']} has no label" for field in fields if not field["attributes"].get("label")]


def test_issue_forms_are_whole() -> None:
    files = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
    forms = {file.name: yaml.safe_load(file.read_text()) for file in files}
    links = forms.pop("config.yml")["contact_links"]
    assert all(link.keys() == {"name", "url", "about"} for link in links)
    assert len(forms) >= 2
    assert {name: found for name, form in forms.items() if (found := wrong_form(form))} == {}
    commands = {name for form in forms.values() for name in re.findall(r"`specdec (\w+)`", str(form))}
    assert {f"specdec {name}" for name in commands} <= set(
        re.findall(r"`(specdec \w+)`", (ROOT / "docs/commands.md").read_text())
    )
    field = {"type": "input", "id": "a", "attributes": {"label": "A"}}
    assert wrong_form({"name": "N", "description": "D", "body": [field]}) == []
    assert wrong_form({"name": "N", "body": [field, field]}) == ["no description", "ids ['a', 'a']"]


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.name)
def test_package_is_whole(package: Package) -> None:
    assert (package.source / "py.typed").exists()
    assert (package.folder / "README.md").exists()
    find = package.pyproject["tool"]["setuptools"]["packages"]["find"]
    assert find == {"where": ["src"]}
    torch = [line for line in package.requirements if re.match(r"torch\b", line)]
    assert all(re.fullmatch(r"torch>=[0-9.]+", line) for line in torch)


def test_every_package_is_installed_by_make() -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    installed = {re.sub(r"\[.*\]", "", line.removeprefix("-e ")) for line in lines if line.startswith("-e ")}
    assert installed == {str(package.folder.relative_to(ROOT)) for package in packages()}
