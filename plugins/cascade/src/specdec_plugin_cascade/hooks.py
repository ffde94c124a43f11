"""The proposer of this package, for `specdec.proposers`."""

from __future__ import annotations

from specdec import hookimpl
from specdec.interfaces import Proposer
from specdec_plugin_cascade.proposer import CascadeProposer


@hookimpl
def specdec_register_proposers() -> type[Proposer]:
    """Return the class behind the method `cascade`."""
    return CascadeProposer
