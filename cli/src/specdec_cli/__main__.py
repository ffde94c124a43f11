"""`python -m specdec_cli`: the command `specdec`."""

from __future__ import annotations

from specdec_cli.main import main

main()
