"""Says what a proposer should have declared."""

from __future__ import annotations

import traceback
from collections.abc import Set

from specdec.errors import described
from specdec.interfaces.capability import Capability


def undeclared(error: BaseException, capabilities: Set[Capability]) -> str:
    """Return the remedy for an exception after a read of hidden states that were not declared, else "".

    Args:
        error: what the proposer raised. Undeclared states are None, so it speaks of a `NoneType`, and one of the functions
            that it passed through reads the field.
        capabilities: those that the proposer declares.
    """
    if Capability.HIDDEN_STATES in capabilities or "NoneType" not in described(error):
        return ""
    if any("hidden_states" in frame.f_code.co_names for frame, _ in traceback.walk_tb(error.__traceback__)):
        return "to read batch.hidden_states declare Capability.HIDDEN_STATES"
    return ""
