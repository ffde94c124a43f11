"""The model of commands that are given none."""

from __future__ import annotations

from specdec import ConfigError
from specdec_cli import warn


def choose_model(what: str) -> str:
    """Return the published model that is installed as a package, or else the zoo's small one, with a warning.

    Args:
        what: runs on it, for the warning.
    """
    from specdec.config import PACKAGED, ZOO, packaged_model

    try:
        packaged_model(PACKAGED[0])
    except ConfigError as error:
        warn(f"{what} runs on the zoo's small model, since {PACKAGED[0]} is not there: {error}")
        return ZOO
    return PACKAGED[0]
