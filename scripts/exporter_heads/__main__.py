"""Makes the fixtures anew; see the package."""

from __future__ import annotations

import contextlib
import sys
import tarfile
import tempfile
from importlib import import_module
from pathlib import Path

import torch
from packages import ROOT

from exporter_heads.inputs import Inputs, target, write_inputs
from exporter_heads.writing import write_all

ARCHIVE = ROOT / "tests/exporters.tar.xz"
EXPORTERS = ("speculators", "modelopt", "specforge", "zlab", "deepspec")


def main() -> None:
    """Write the inputs, and the heads of the named exporters."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary):
        folder, fixtures = Path("target"), Path("fixtures").resolve()  # some heads name the first
        with tarfile.open(ARCHIVE) as archive:  # heads of other exporters stay
            archive.extractall(fixtures, filter="data")
        write_inputs(fixtures, target(folder))
        for exporter in sys.argv[1:] or EXPORTERS:
            heads = import_module(f"exporter_heads.of_{exporter}").heads(folder)
            write_all(heads, fixtures, Inputs(fixtures))
        with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
            for path in sorted(fixtures.rglob("*")):
                archive.add(path, path.relative_to(fixtures), recursive=False)


if __name__ == "__main__":
    main()
