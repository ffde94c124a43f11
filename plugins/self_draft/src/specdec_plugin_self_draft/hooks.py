"""The proposer of this package, for `specdec.proposers`."""

from specdec import hookimpl
from specdec.interfaces import Proposer
from specdec_plugin_self_draft.proposer import SelfDraftProposer


@hookimpl
def specdec_register_proposers() -> type[Proposer]:
    """Return the class behind the method `self`."""
    return SelfDraftProposer
