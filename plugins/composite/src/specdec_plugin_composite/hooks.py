"""The proposers of this package, for `specdec.proposers`."""

from __future__ import annotations

from specdec import hookimpl
from specdec.interfaces import Proposer
from specdec_plugin_composite.auto import AutoProposer
from specdec_plugin_composite.proposer import CompositeProposer


@hookimpl
def specdec_register_proposers() -> list[type[Proposer]]:
    """Return the classes behind the methods of this package."""
    return [AutoProposer, CompositeProposer]
