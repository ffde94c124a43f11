"""The proposer of this package, for `specdec.proposers`."""

from __future__ import annotations

from specdec import hookimpl
from specdec.interfaces import Proposer
from specdec_plugin_suffix.proposer import SuffixProposer


@hookimpl
def specdec_register_proposers() -> type[Proposer]:
    """Return the class behind the method `suffix`."""
    return SuffixProposer
