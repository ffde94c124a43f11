"""`python scripts/lower_bounds.py`: constraints that hold libraries to the lower bounds which the packages declare."""

from __future__ import annotations

import re

from packages import packages

HELD = (
    "accelerate",
    "gguf",
    "llguidance",
    "numba",
    "numpy",
    "pydantic",
    "safetensors",
    "torch",
    "transformers",
    "typer",
)
"""Libraries whose versions differ in what packages use of them."""


def main() -> None:
    """Print a constraint for each library: the highest of the bounds, any patch of it."""
    bounds: dict[str, tuple[int, ...]] = {}
    for line in (line for package in packages() for line in package.requirements):
        found = re.match(r"([\w-]+)>=([\d.]+)", line)
        if found and found[1] in HELD:
            bound = tuple(map(int, found[2].split(".")))
            bounds[found[1]] = max(bound, bounds.get(found[1], ()))
    for name, bound in sorted(bounds.items()):
        print(f"{name}=={'.'.join(map(str, bound))}.*")


if __name__ == "__main__":
    main()
