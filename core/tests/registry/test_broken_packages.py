"""Installed packages whose metadata cannot be read cost only their own plugins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specdec import PluginError, registry

ENTRY_POINTS = b"[specdec.proposers]\nlost = lost_module\n"
METADATA = b"Metadata-Version: 2.1\nName: lost\nVersion: 1.0\n"
BROKEN: dict[str, tuple[dict[str, bytes], str]] = {
    "no METADATA": ({"entry_points.txt": ENTRY_POINTS}, "it says no Name"),
    "no Name": ({"entry_points.txt": ENTRY_POINTS, "METADATA": b"Version: 1.0\n"}, "it says no Name"),
    "an empty Name": ({"entry_points.txt": ENTRY_POINTS, "METADATA": b"Name:\nVersion: 1\n"}, "it says no Name"),
    "no Version": ({"entry_points.txt": ENTRY_POINTS, "METADATA": b"Name: lost\n"}, "it says no Version"),
    "METADATA in Latin-1": ({"entry_points.txt": ENTRY_POINTS, "METADATA": METADATA + b"Author: \xe9\n"}, "'utf-8' codec"),
    "entry points in Latin-1": ({"entry_points.txt": b"[other]\nx = caf\xe9\n", "METADATA": METADATA}, "'utf-8' codec"),
    "entry points in UTF-16": ({"entry_points.txt": "[a]".encode("utf-16"), "METADATA": METADATA}, "'utf-8' codec"),
    "a line without a value": (
        {"entry_points.txt": ENTRY_POINTS + b"specdec.lost\n", "METADATA": METADATA},
        "TypeError",
    ),
}  # fmt: skip


def install_broken(site: Any, files: dict[str, bytes]) -> Path:
    """Install a sound plugin beside a broken package, which is found before and after it."""
    site.install("parrots", {"proposers": {"parrot": "no_such_module"}}, {})
    folder: Path = site.path / "lost-1.0.dist-info"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    registry.reset()
    return folder


@pytest.mark.parametrize("kind", BROKEN)
def test_the_plugins_of_all_others_are_found(site: Any, kind: str) -> None:
    files, reason = BROKEN[kind]
    folder = install_broken(site, files)
    names = {info.name for info in registry.installed()}
    assert {"parrot", "strict", "transformers"} <= names
    assert "lost" not in names
    (package,) = registry.broken()
    assert package.path == str(folder)
    assert reason in package.reason


def test_a_broken_package_that_is_no_plugin_of_ours_is_not_read_further(site: Any) -> None:
    install_broken(site, {"entry_points.txt": b"[console_scripts]\nx = y:z\n"})
    assert registry.broken() == ()


def test_a_name_that_is_not_found_may_be_in_a_broken_package(site: Any) -> None:
    folder = install_broken(site, {"entry_points.txt": ENTRY_POINTS})
    with pytest.raises(PluginError) as caught:
        registry.proposer("lost")
    assert str(caught.value).startswith("there is no method 'lost'")
    assert str(caught.value).endswith(
        f"; the metadata in {folder} cannot be read: ValueError: it says no Name: remove or reinstall that package"
    )


def test_an_engine_that_looks_for_observers_warns(site: Any, caplog: pytest.LogCaptureFixture) -> None:
    folder = install_broken(site, {"entry_points.txt": b"\xff"})
    registry.observers()
    assert f"the metadata in {folder} cannot be read" in caplog.text
