"""`specdec plugins`: lists installed plugins from metadata, and optionally checks that they load."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specdec import hookimpl, registry
from specdec.registry import BrokenPackage, PluginInfo
from specdec_cli import print_json, print_table

Row = dict[str, Any]


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec plugins`."""
    app.command("plugins")(plugins)


def plugins(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Import each in a process of its own.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that one import may take, with --check.")] = 120.0,
) -> None:
    """List the installed plugins.

    Metadata is read and nothing imported, unless --check is given; then the exit code is 1 if one that may
    load does not, or if a package's metadata cannot be read. What a class says of itself, such as that a sampler
    is lossy, is known with --check only.
    """
    infos = registry.installed()
    rows = _checked(infos, timeout) if check else [_row(info) for info in infos]
    if as_json:
        print_json(rows)
    else:
        _print(rows, with_state=check)
    if any(row.get("error") for row in rows):
        raise typer.Exit(1)


def _row(info: PluginInfo) -> Row:
    return {
        "name": info.name,
        "group": info.group.value,
        "distribution": info.distribution,
        "version": info.version,
        "module": info.module,
        "may_load": registry.may_load(info),
    }


def _checked(infos: list[PluginInfo], timeout_s: float) -> list[Row]:
    from specdec_cli.probe_many import probe_each

    tried = [info for info in infos if registry.may_load(info)]
    results = {result.info: result for result in probe_each(tried, timeout_s=timeout_s)}
    states = {
        info: {
            "error": result.error,
            "capabilities": list(result.capabilities),
            "is_lossless": result.is_lossless,
            "implementation": result.implementation,
        }
        for info, result in results.items()
    }
    unknown: Row = {"error": None, "capabilities": [], "is_lossless": None, "implementation": ""}
    rows = [_row(info) | states.get(info, unknown) for info in infos]
    return rows + [_broken_row(package) | unknown | {"error": str(package)} for package in registry.broken()]


def _broken_row(package: BrokenPackage) -> Row:
    return {
        "name": package.path,
        "group": "package",
        "distribution": "",
        "version": "",
        "module": "",
        "may_load": False,
    }


def _print(rows: list[Row], *, with_state: bool) -> None:
    columns = ["name", "kind", "package", "module", *(["loads", "capabilities"] if with_state else [])]
    lines = []
    for row in rows:
        kind, package = row["group"].removeprefix("specdec."), f"{row['distribution']} {row['version']}"
        loads = "no" if row.get("error") else "yes" if row["may_load"] else "may not"
        if row.get("is_lossless") is False:
            loads += ", lossy"
        if row.get("implementation"):
            loads += f": {row['implementation']}"
        state = [loads, ", ".join(row["capabilities"])] if with_state else []
        lines.append([row["name"], kind, package, row["module"], *state])
    print_table(columns, lines)
    for row in rows:
        if row.get("error"):
            print(f"\n{row['error']}")
