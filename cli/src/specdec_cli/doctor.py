"""`specdec doctor`: versions, devices, backends, plugins that load, and memory."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec import hookimpl, registry
from specdec.errors import described, line_of
from specdec.folders import cache_folder, compiled_folder
from specdec_cli import print_fields, print_json

if TYPE_CHECKING:
    from specdec.interfaces import Compiled

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
        plugins = pool.submit(_plugins, timeout)  # runs in other processes while torch is imported here
        report: dict[str, Mapping[str, Any]] = {
            "versions": _versions(),
            "folders": _folders(),
            "memory_mb": _memory(),
            "devices": _devices(),
            **_backends(),
        }
        if not as_json:
            for heading, fields in report.items():
                _print(heading, fields)
        report["plugins"], all_load = plugins.result()
    if as_json:
        print_json(report)
    else:
        _print("plugins", report["plugins"])
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


def _devices() -> dict[str, Any]:
    import torch

    devices = {"cpu": f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices[f"cuda:{index}"] = f"{properties.name}, {properties.total_memory / 1e6:.0f} MB"
    for name in ("mps", "xpu"):
        backend = getattr(torch, name, None)
        if backend is not None and backend.is_available():
            devices[name] = "available"
    return devices


def _backends() -> dict[str, Mapping[str, Any]]:
    """Return what each backend offers on the default device, or why it offers nothing; and what is compiled for it."""
    import torch

    from specdec.interfaces import Declined

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found, compiled = dict[str, str](), dict[str, str | int]()
    for backend in registry.backends():
        try:
            answers, kept = backend.answers(device), backend.compiled(device)
        except Exception as error:  # a compiler or a driver may raise anything
            found[backend.name] = f"it raised {described(error)}{line_of(error)}"
            continue
        offers = [name for name, answer in answers.items() if not isinstance(answer, Declined)]
        declined = [answer for answer in answers.values() if isinstance(answer, Declined)]
        elsewhere = next((answer for answer in declined if answer.is_elsewhere), None)
        found[backend.name] = ", ".join(offers) or f"nothing: {(elsewhere or declined[0]).reason}"
        if kept is not None:
            compiled |= {f"{backend.name} {name}": value for name, value in asdict(kept).items()}
            compiled[f"{backend.name} next_start"] = _next_start(kept)
    cost = "models run with torch alone, on the CPU two to four times slower"
    return {"backends": found or {"none": f"{cost}; {registry.why_no_backend()}"}, "compiled": compiled}


def _next_start(kept: Compiled) -> str:
    if kept.num_ahead:
        return "compiles at most what few models or methods need, seconds for each"
    if kept.num_kept:
        return "has what ran before at once; anything else compiles for up to a minute"
    return "compiles for about a minute"


def _folders() -> dict[str, str]:
    return {"models": str(cache_folder() / "models"), "compiled code": str(compiled_folder())}


def _memory() -> dict[str, Any]:
    import psutil

    memory = psutil.virtual_memory()
    return {"total": round(memory.total / 1e6), "available": round(memory.available / 1e6)}


def _plugins(timeout_s: float) -> tuple[dict[str, str], bool]:
    """Return the state of each plugin and of each package that cannot be read, and whether all load."""
    from specdec_cli.probe_many import probe_many

    infos = list(filter(registry.may_load, registry.installed()))
    results = list(probe_many(infos, timeout_s=timeout_s))
    states = {
        f"{result.info.group.noun} {result.info.name}": result.error or _loaded(result.implementation)
        for result in results
    }
    broken = {f"package {package.path}": str(package) for package in registry.broken()}
    return states | broken, not broken and not any(result.error for result in results)


def _loaded(implementation: str) -> str:
    return f"loads: {implementation}" if implementation else "loads"


def _print(heading: str, fields: Mapping[str, Any]) -> None:
    print(heading)
    print_fields({f"  {name}": value for name, value in fields.items()})
    print(flush=True)
