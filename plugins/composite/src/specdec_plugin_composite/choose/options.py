"""What the rows of a step may draft, and what they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specdec_plugin_composite.offer import Offer
from specdec_plugin_composite.round import Choice, Unseen


@dataclass(frozen=True)
class Option:
    """A draft that one row may have."""

    member: int
    gains: Sequence[float]
    """Expected accepted tokens of the first 1, 2, ... nodes."""
    offer: Offer | None
    """None for a draft that is made only if it is chosen."""
    can_shorten: bool = True

    @property
    def shortest(self) -> int:
        """Least number of nodes that it may have."""
        return 1 if self.can_shorten else len(self.gains)


@dataclass(frozen=True)
class Pick:
    """What one row drafts."""

    option: Option
    num_nodes: int

    @property
    def choice(self) -> Choice:
        """The choice for `Policy.draft`."""
        if self.option.offer is None:
            return Unseen(self.option.member, self.num_nodes)
        return self.option.offer.first(self.num_nodes)


@dataclass(frozen=True)
class Plan:
    """What a step drafts."""

    options: Mapping[int, Pick] = field(default_factory=dict)
    """By row."""
    tokens: float = 0.0
    """Expected tokens of the step."""
    seconds: float = 0.0
    """Its expected duration."""

    def cost_of_trial(self, drafting_s: float) -> float:
        """Return how much of this step a draft that takes `drafting_s` would take."""
        return drafting_s / self.seconds if self.seconds else 0.0
