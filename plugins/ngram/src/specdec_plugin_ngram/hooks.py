"""The proposer `ngram`, for `specdec.proposers`."""

from specdec import hookimpl
from specdec.interfaces import Proposer
from specdec_plugin_ngram.proposer import NgramProposer


@hookimpl
def specdec_register_proposers() -> type[Proposer]:
    """Return the class behind the method `ngram`."""
    return NgramProposer
