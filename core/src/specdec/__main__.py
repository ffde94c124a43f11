"""`python -m specdec`: the command line."""

from __future__ import annotations

from specdec.cli.main import main

main()
