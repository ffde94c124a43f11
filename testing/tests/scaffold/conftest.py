"""An environment in which plugins are installed as their users would: wheels of core, toolkits and zoo, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from packages import packages
from speccheck.environment import Environment, wheel_of


def made(folder: Path, *names: str) -> Environment:
    """Return an environment with some of our packages, from wheels."""
    built = [wheel_of(p, folder / "wheels") for p in packages() if p.name in names]
    environment = Environment(folder)
    environment.install(*built)
    return environment


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Core, the runtime, the conformance kit, and the zoo."""
    names = "specdec-core", "specdec-cli", "specdec-runtime", "specdec-testing", "specdec-zoo"
    return made(tmp_path_factory.mktemp("installed"), *names)
