"""The proposer `ngram_gpu`, for `specdec.proposers`: apart, because it needs `specdec-kernels`."""

from specdec import hookimpl
from specdec.interfaces import Proposer
from specdec_plugin_ngram.gpu import NgramGpuProposer


@hookimpl
def specdec_register_proposers() -> type[Proposer]:
    """Return the class behind the method `ngram_gpu`."""
    return NgramGpuProposer
