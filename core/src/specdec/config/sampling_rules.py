"""Chooses the draft sampling that fits proposer and sampler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.config.notices import notice
from specdec.config.speculative import PLACE, SpeculativeConfig
from specdec.errors import ConfigError

if TYPE_CHECKING:
    from specdec.interfaces import Proposer, Sampler


def choose_draft_sampling(config: SpeculativeConfig, proposer: type[Proposer], sampler: type[Sampler]) -> str:
    """Return `draft_sample_method`, based on the capabilities of sampler and proposer.

    By default a sampler that uses q gets probabilistic drafts, and a coupled sampler gets coupled drafts: measured on the
    zoo, these are accepted at least as often as greedy ones at every temperature. `Capability.DRAFT_PROBS` states whether
    the sampler uses q and whether the proposer returns it.

    Raises:
        ConfigError: if the given method does not fit the proposer or the sampler.
    """
    from specdec.interfaces import Capability

    given = config.draft_sample_method
    uses_q = Capability.DRAFT_PROBS in sampler.capabilities
    gives_q = Capability.DRAFT_PROBS in proposer.capabilities
    verified = f"'rejection_sample_method': {config.rejection_sample_method!r}"
    if given is None:
        if not gives_q:
            return "greedy"
        return "probabilistic" if uses_q else "coupled" if sampler.is_coupled else "greedy"
    if given != "greedy" and not gives_q:
        raise ConfigError(
            f"{PLACE}: 'draft_sample_method': {given!r} needs a method that draws its tokens; "
            f"{proposer.name!r} does not: leave the key out"
        )
    if given == "coupled" and uses_q:
        raise ConfigError(
            f"{PLACE}: 'draft_sample_method': 'coupled' does not go with {verified}, which "
            "needs drafts drawn with noise of their own: use 'probabilistic', or "
            "'rejection_sample_method': 'strict'"
        )
    if given == "probabilistic" and not uses_q:
        notice(
            f"{PLACE}:draft_sample_method:{given}",
            f"{PLACE}: 'draft_sample_method': 'probabilistic' lowers acceptance with {verified}, "
            "which makes no use of q: leave it out",
        )
    return given
