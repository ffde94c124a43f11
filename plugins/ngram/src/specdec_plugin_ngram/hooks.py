"""The proposers of this package, for `specdec.proposers`."""

from specdec import hookimpl
from specdec.interfaces import Proposer
from specdec_plugin_ngram.gpu import NgramGpuProposer
from specdec_plugin_ngram.proposer import NgramProposer


@hookimpl
def specdec_register_proposers() -> list[type[Proposer]]:
    """Return the classes behind the methods `ngram` and `ngram_gpu`."""
    return [NgramProposer, NgramGpuProposer]
