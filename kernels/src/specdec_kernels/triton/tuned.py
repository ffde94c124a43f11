"""Finds launch parameters: those tuned on this kind of device if there are any, else the operation's heuristic.

`python -m specdec_kernels.triton.tune` writes the measurements to `configs/<operation>/<device>.json`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, astuple, is_dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

FOLDER = Path(__file__).parent / "configs"

Sizes = ParamSpec("Sizes")
Config = TypeVar("Config")


def launch_config(
    op: str,
    heuristic: Callable[Sizes, Config],
    candidates: Callable[Sizes, list[Config]],
    device: torch.device,
    *sizes: Sizes.args,
    **named: Sizes.kwargs,
) -> Config:
    """Return launch parameters for a call.

    The nearest problem measured on this kind of device is used, by the logarithms of its sizes. Its best configuration may
    not fit the call, so the nearest configuration is selected from the call's own heuristic and candidates.

    Args:
        op: the operation's folder.
        heuristic: of the operation; used if nothing was measured.
        candidates: of the operation.
        device: of the call.
        sizes: arguments of both.
        named: must be empty; the signature needs it to fit every operation.
    """
    assert not named
    name = device_slug(device)
    if name is None or not measured(op, name):
        return heuristic(*sizes, **named)
    found: Config = _nearest(op, name, heuristic, candidates, sizes)
    return found


def device_slug(device: torch.device) -> str | None:
    """Return the file name of a device, or None for devices without kernels."""
    return _slug(device.index) if device.type == "cuda" else None


def slug(device_name: str) -> str:
    """Return a device's name in the form of a file name, such as `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-")


@cache
def measured(op: str, name: str) -> list[dict[str, Any]]:
    """Return the measurements of an operation on a device, each with `sizes` and the best `config`; empty without a file."""
    file = FOLDER / op / f"{name}.json"
    if not file.exists():
        return []
    entries: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["entries"]
    return entries


def numbers(sizes: Iterable[Any]) -> list[int]:
    """Return the arguments of a heuristic as stored in a file: a flat list of numbers."""
    found: list[int] = []
    for size in sizes:
        found += astuple(size) if is_dataclass(size) and not isinstance(size, type) else (size,)
    return found


@lru_cache(maxsize=4096)
def _nearest(
    op: str,
    name: str,
    heuristic: Callable[..., Any],
    candidates: Callable[..., list[Any]],
    sizes: tuple[Any, ...],
) -> Any:
    wanted = numbers(sizes)
    entry = min(measured(op, name), key=lambda entry: _distance(entry["sizes"], wanted))
    best: dict[str, int | None] = entry["config"]
    return min(
        [heuristic(*sizes), *candidates(*sizes)],
        key=lambda config: _distance([best[field] for field in asdict(config)], asdict(config).values()),
    )


def _distance(a: Iterable[int | None], b: Iterable[int | None]) -> float:
    return sum(math.log((1 + (x or 0)) / (1 + (y or 0))) ** 2 for x, y in zip(a, b, strict=True))


@cache
def _slug(index: int | None) -> str:
    return slug(torch.cuda.get_device_name(index))
