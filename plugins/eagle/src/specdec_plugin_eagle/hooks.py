"""The proposers of this package, for `specdec.proposers`."""

from specdec import hookimpl
from specdec.interfaces import Proposer
from specdec_plugin_eagle.proposer import Eagle3Proposer, EagleProposer


@hookimpl
def specdec_register_proposers() -> list[type[Proposer]]:
    """Return the classes behind the methods `eagle` and `eagle3`."""
    return [EagleProposer, Eagle3Proposer]
