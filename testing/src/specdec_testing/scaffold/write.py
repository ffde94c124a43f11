"""Writes the files of a new plugin package."""

from __future__ import annotations

from pathlib import Path
from string import Template

from specdec import ConfigError, __version__
from specdec_testing.scaffold.kinds import Kind
from specdec_testing.scaffold.names import PluginNames


def write_package(names: PluginNames, kind: Kind, directory: Path) -> list[Path]:
    """Write the package of a plugin into a new folder of `directory` and return its files.

    Raises:
        ConfigError: if `directory` does not exist, cannot be written to, or already has such a folder.
    """
    if not directory.is_dir():
        raise ConfigError(f"--directory: there is no folder {str(directory)!r}")
    folder = directory / names.folder
    if folder.exists():
        raise ConfigError(f"{str(folder)!r} already exists, and nothing is overwritten: choose another name")
    values = {
        "cls": names.cls,
        "distribution": names.distribution,
        "group": kind.group.value,
        "module": names.module,
        "version": __version__,
        "next_version": next_version(__version__),
        "runtime": f', "specdec-runtime>={__version__},<{next_version(__version__)}"'
        if kind.needs_runtime
        else "",
        "noun": kind.group.noun,
    }
    written = []
    for path, text in kind.files.items():
        file = folder / Template(path).substitute(values)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(Template(text).substitute(values), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--directory: {str(file)!r} cannot be written: {error.strerror}") from None
        written.append(file)
    return written


def next_version(version: str) -> str:
    """Return the first version that may change the contracts: the next minor version before 1.0, then the next major one."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return f"{major + 1}.0" if major else f"0.{minor + 1}"
