"""`python scripts/generate_docs.py [--check]`: write the generated parts of pages, and their measured numbers.

A generated part is between `<!-- generated: NAME [ARGUMENT] -->` and `<!-- end -->`; a number is a link (`measured.py`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import measured
import speed_tables
from hosts_table import hosts
from matrix_table import matrix_table
from option_tables import options_table
from packages import ROOT, Package, packages
from readme_table import engines_table, gains_table, markdown_table, results_table
from tested_versions import RESULTS, tested_versions

from specdec import ProposerConfig
from specdec.registry import known_commands, known_methods

PART = re.compile(r"(<!-- generated: (\w+)(?: (\S+))? -->\n)(.*?)(<!-- end -->)", re.S)


def options(path: str) -> str:
    """The fields of a configuration class, `module:Class`."""
    module, name = path.split(":")
    owner = getattr(import_module(module), name)
    return options_table(owner, without=ProposerConfig if issubclass(owner, ProposerConfig) else None)


def commands(_: str) -> str:
    """The sub-commands of official packages, described as on the command line."""
    there = {name: package for package in packages() for name in package.entry_points("specdec.commands")}
    rows = [
        [f"`specdec {name}`", _line(name, there[name]), f"`{there[name].name}`"] for name in sorted(there)
    ]
    return markdown_table([["command", "what it does", "package"], *rows])


def _line(command: str, package: Package) -> str:
    """The line shown in the list of commands: the official one, else the package's description."""
    official = known_commands()
    return official[command][1] if command in official else str(package.pyproject["project"]["description"])


def methods(_: str) -> str:
    """The methods of official packages."""
    known = known_methods()
    other = {alias: method.name for method in known.values() for alias in method.aliases}
    rows = [
        [f"`{name}`", known[name].summary, f"`{package.name}`"]
        for package in packages()
        for name in package.entry_points("specdec.proposers")
        if name not in other
    ]
    return markdown_table([["method", "how it guesses", "package"], *rows])


def results(file: str) -> str:
    """The rows of a result file in benchmarks/results."""
    return results_table(ROOT / "benchmarks/results" / file)


def engines(file: str) -> str:
    """A comparison with several engines in benchmarks/results, one engine per line."""
    return engines_table(ROOT / "benchmarks/results" / file)


def gains(files: str) -> str:
    """What each method gains: two result files of a suite, greedy and sampled, separated by a comma."""
    return gains_table(*(ROOT / "benchmarks/results" / file for file in files.split(",")))


def matrix(_: str) -> str:
    """The cells in tests/results/matrix.json, one line per sampler."""
    return matrix_table(ROOT / "tests/results/matrix.json")


def versions(_: str) -> str:
    """What passed with which versions of `transformers`."""
    return tested_versions(RESULTS)


def _of_file(table: Callable[[Path], str]) -> Callable[[str], str]:
    """Return the generator of a table of a result file."""
    return lambda file: table(ROOT / "benchmarks/results" / file)


GENERATORS: dict[str, Callable[[str], str]] = {
    "commands": commands,
    "gains": gains,
    "matrix": matrix,
    "methods": methods,
    "options": options,
    "results": results,
    "engines": engines,
    "versions": versions,
}
GENERATORS |= {table.__name__: _of_file(table) for table in (*speed_tables.TABLES, hosts)}


def generated(page: Path) -> str:
    """Return a document with its generated parts and measured numbers as they should be."""

    def part(match: re.Match[str]) -> str:
        start, name, argument, _, end = match.groups()
        return f"{start}{GENERATORS[name](argument or '')}\n{end}"

    return measured.rewritten(page, PART.sub(part, page.read_text(encoding="utf-8")))


def main(arguments: list[str]) -> int:
    """Write every document, or with --check list those that are not up to date."""
    if arguments not in ([], ["--check"]):
        print("usage: python scripts/generate_docs.py [--check]", file=sys.stderr)
        return 2
    stale = [page for page in measured.pages() if generated(page) != page.read_text(encoding="utf-8")]
    for page in stale:
        print(page.relative_to(ROOT))
        if not arguments:
            page.write_text(generated(page), encoding="utf-8")
    return 1 if stale and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
