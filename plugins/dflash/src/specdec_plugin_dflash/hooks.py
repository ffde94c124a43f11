"""The proposer of this package, for `specdec.proposers`."""

from specdec import hookimpl
from specdec.interfaces import Proposer
from specdec_plugin_dflash.proposer import DFlashProposer


@hookimpl
def specdec_register_proposers() -> list[type[Proposer]]:
    """Return the class behind the method `dflash`."""
    return [DFlashProposer]
