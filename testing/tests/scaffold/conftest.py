"""An environment in which plugins are installed as their users would: wheels of core, toolkits and zoo, and nothing else."""

from __future__ import annotations

import pytest
import wheels
from packages import packages
from speccheck.environment import Environment


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Core, the toolkit for heads, the conformance kit and the zoo, from wheels."""
    folder = tmp_path_factory.mktemp("installed")
    names = ("specdec-core", "specdec-drafting", "specdec-testing", "specdec-zoo")
    built = [wheels.build(p.folder, folder / "wheels") for p in packages() if p.name in names]
    made = Environment(folder)
    made.install(*built)
    return made
