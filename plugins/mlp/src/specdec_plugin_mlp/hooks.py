"""The proposers of this package, for `specdec.proposers`."""

from __future__ import annotations

from specdec import hookimpl
from specdec.interfaces import Proposer
from specdec_plugin_mlp.medusa.proposer import MedusaProposer
from specdec_plugin_mlp.mlp_speculator.proposer import MLPSpeculatorProposer


@hookimpl
def specdec_register_proposers() -> list[type[Proposer]]:
    """Return the classes behind the methods `mlp_speculator` and `medusa`."""
    return [MLPSpeculatorProposer, MedusaProposer]
