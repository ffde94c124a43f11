"""The processor that code is compiled for: a group of them, for which code compiled ahead may be there, or this one alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from llvmlite import binding
from numba import config
from numba.core import registry

from specdec import ConfigError

VARIABLE = "SPECDEC_CPU_TARGET"
"""Environment variable: the name of a target that this processor runs, whose code it then has."""
_V3 = ("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_VNNI = (*_V4, "avx512vnni")


class Target(NamedTuple):
    """A group of processors."""

    name: str
    """Name of the folder of its code."""
    cpu: str
    """LLVM's name of the least of them."""
    features: tuple[str, ...]
    """LLVM's names of what all of them can do, and compiled code may use."""
    tuning: str = ""
    """What LLVM is told beside that."""

    @property
    def flags(self) -> str:
        """Its features as LLVM takes them."""
        return ",".join([*(f"+{name}" for name in self.features), *filter(None, [self.tuning])])


TARGETS = (
    # On these, loops that LLVM vectorises are the fastest in registers of 512 bits.
    Target("x86-64-v4-bf16-zen", "x86-64-v4", (*_VNNI, "avx512bf16"), "-prefer-256-bit"),
    Target("x86-64-v4-bf16", "x86-64-v4", (*_VNNI, "avx512bf16")),
    Target("x86-64-v4-vnni", "x86-64-v4", _VNNI),
    Target("x86-64-v3", "x86-64-v3", _V3),
    Target("aarch64", "generic", ("neon",)),
)
"""Those for which code is compiled ahead: Zen 4 and 5, Sapphire Rapids and later, Ice Lake and its like, any with AVX2; and
64-bit Arm, of whose instructions the loops name none."""


def fitting(features: Mapping[str, bool], cpu: str) -> list[Target]:
    """Return the targets whose code a processor runs, the best first, which is the one it has code compiled for.

    The list is empty, and code is compiled for exactly this processor, if none has all that matters: AVX-512 without VNNI, no
    AVX2, and where features are not told.

    Args:
        features: what the processor can do, by LLVM's names.
        cpu: LLVM's name of it.
    """
    found = [target for target in TARGETS if all(features.get(name) for name in target.features)]
    if not cpu.startswith("znver"):
        found = [target for target in found if not target.tuning] + [t for t in found if t.tuning]
    is_lost = bool(found) and features.get("avx512f") and "avx512f" not in found[0].features
    return [] if is_lost else found


def _host_features() -> dict[str, bool]:
    """Return what this processor can do, or what numba is configured to use."""
    if config.CPU_NAME or config.CPU_FEATURES:  # type: ignore[attr-defined]  # made from the environment
        return {name[1:]: name[0] == "+" for name in (config.CPU_FEATURES or "").split(",") if name}  # type: ignore[attr-defined]  # ditto
    try:
        return dict(binding.get_host_cpu_features())
    except RuntimeError:  # not supported by llvmlite on every platform
        return {}


def _chosen() -> Target | None:
    """Return this processor's target and have numba compile for it; None where numba is configured, or compiles already."""
    if config.CPU_NAME or config.CPU_FEATURES:  # type: ignore[attr-defined]  # made from the environment
        asked = (config.CPU_NAME, config.CPU_FEATURES)  # type: ignore[attr-defined]  # ditto
        return next((target for target in TARGETS if (target.cpu, target.flags) == asked), None)
    if "_toplevel_target_context" in vars(registry.cpu_target):  # its code is for this processor alone by now
        return None
    found = fitting(HOST_FEATURES, binding.get_host_cpu_name())
    if asked_for := os.environ.get(VARIABLE):
        names = [target.name for target in found]
        if asked_for not in names:
            raise ConfigError(
                f"{VARIABLE}={asked_for!r} is not one of {', '.join(names)}, which run on this processor"
            )
        found = found[names.index(asked_for) :]
    for target in found[:1]:
        config.CPU_NAME, config.CPU_FEATURES = target.cpu, target.flags  # type: ignore[attr-defined]  # ditto
        return target
    return None


HOST_FEATURES = _host_features()
"""What this processor can do, by LLVM's names."""
TARGET = _chosen()
"""What code is compiled for; None for exactly this processor."""
FEATURES: Mapping[str, bool] = HOST_FEATURES if TARGET is None else dict.fromkeys(TARGET.features, True)
"""What compiled code may use, by LLVM's names."""
