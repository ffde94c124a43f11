"""Makes the fixtures anew; see the package."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import torch
from packages import ROOT

from exporter_heads.inputs import Inputs, target, write_inputs
from exporter_heads.writing import write_all

FOLDER = ROOT / "tests/exporters"
EXPORTERS = ("speculators", "modelopt", "specforge", "zlab")


def main() -> None:
    """Write the inputs, and the heads of the named exporters."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary):
        folder = Path("target")  # some heads name it
        write_inputs(FOLDER, target(folder))
        for exporter in sys.argv[1:] or EXPORTERS:
            heads = import_module(f"exporter_heads.of_{exporter}").heads(folder)
            write_all(heads, FOLDER, Inputs(FOLDER))


if __name__ == "__main__":
    main()
