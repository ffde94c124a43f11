"""What devices there are, and what backends offer on the default one; `specdec doctor` has another process find it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from specdec import registry
from specdec.errors import described, line_of

if TYPE_CHECKING:
    from specdec.interfaces import Compiled


def machine() -> dict[str, Mapping[str, Any]]:
    """Return fields under the headings `devices`, `backends` and `compiled`; imports torch and the backends."""
    return {"devices": _devices(), **_backends()}


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
