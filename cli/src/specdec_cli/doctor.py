"""`specdec doctor`: versions, devices, backends, plugins that load, and memory."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

from specdec import hookimpl, registry
from specdec.folders import cache_folder, compiled_folder
from specdec_cli import print_fields, print_json

PACKAGES = (
    "torch", "transformers", "tokenizers", "safetensors", "triton", "llguidance", "pydantic", "pluggy",
)  # fmt: skip


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec doctor`."""
    app.command("doctor")(doctor)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that the import of one plugin may take.")] = 120.0,
) -> None:
    """Show versions, devices, backends, plugins and memory.

    The exit code is 1 if an installed plugin does not load, or if a package's metadata cannot be read.
    """
    with ThreadPoolExecutor(1) as pool:
        finding = pool.submit(_found, timeout)  # first, since it takes longest
        report: dict[str, Mapping[str, Any]] = {
            "versions": _versions(),
            "folders": _folders(),
            "memory_mb": _memory(),
        }
        if not as_json:
            _print(report)
        found, all_load = finding.result()
    if as_json:
        print_json(report | found)
    else:
        _print(found)
    if not all_load:
        raise typer.Exit(1)


def _versions() -> dict[str, Any]:
    found = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": sys.executable,
    }
    ours = sorted({info.distribution for info in registry.installed()})
    for package in (*ours, *PACKAGES):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _folders() -> dict[str, str]:
    return {"models": str(cache_folder() / "models"), "compiled code": str(compiled_folder())}


def _memory() -> dict[str, Any]:
    import psutil

    memory = psutil.virtual_memory()
    return {"total": round(memory.total / 1e6), "available": round(memory.available / 1e6)}


def _found(timeout_s: float) -> tuple[dict[str, Mapping[str, Any]], bool]:
    """Return what another process finds: devices, backends, and the state of each plugin; and whether all load.

    One process imports torch, for all of it: a second one at the same time would take as long.
    """
    from specdec_cli.probe_many import probe_many

    infos = list(filter(registry.may_load, registry.installed()))
    machine: dict[str, Mapping[str, Any]] = {}
    results = list(probe_many(infos, timeout_s=timeout_s, machine=machine))
    states = {
        f"{result.info.group.noun} {result.info.name}": result.error or _loaded(result.implementation)
        for result in results
    }
    broken = {f"package {package.path}": str(package) for package in registry.broken()}
    all_load = not broken and not any(result.error for result in results)
    return machine | {"plugins": states | broken}, all_load


def _loaded(implementation: str) -> str:
    return f"loads: {implementation}" if implementation else "loads"


def _print(report: Mapping[str, Mapping[str, Any]]) -> None:
    for heading, fields in report.items():
        print(heading)
        print_fields({f"  {name}": value for name, value in fields.items()})
        print(flush=True)
