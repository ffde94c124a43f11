"""`python -m specdec_commands`: the command `specdec`."""

from __future__ import annotations

from specdec_commands.main import main

main()
