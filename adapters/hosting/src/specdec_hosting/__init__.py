"""Runs a proposer in another engine's loop; the adapters for vLLM, SGLang and llama.cpp are built on this.

`open_proposer` resolves a `speculative_config` and loads the proposer. The `HostedProposer` that it returns
receives requests and their tokens, and drafts for them under the engine's own guard.
"""

from specdec_hosting.hosted import HostedProposer
from specdec_hosting.opening import open_proposer, resolve_for_host
from specdec_hosting.projections import with_parts_of
from specdec_hosting.target import HostTarget

__all__ = ["HostTarget", "HostedProposer", "open_proposer", "resolve_for_host", "with_parts_of"]
