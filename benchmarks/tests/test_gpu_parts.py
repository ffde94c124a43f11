"""What `scripts/gpu.py` takes to a machine with a GPU is there."""

from __future__ import annotations

import gpu


def test_the_packages_that_it_names_have_dependencies_to_look_up() -> None:
    assert [folder for folder in gpu._NEEDED if not (gpu.ROOT / folder / "pyproject.toml").is_file()] == []
    assert gpu.missing_packages() == []  # nothing is missing where every package is installed


def test_the_folders_and_files_of_its_commands_exist() -> None:
    named = [word for job in gpu.PARTS.values() for word in job.command if word.endswith(".py")]
    tests = gpu.PARTS["tests"].command
    folders = tests[tests.index("default") + 1 :]
    assert [path for path in (*named, *folders) if not (gpu.ROOT / path).exists()] == []
