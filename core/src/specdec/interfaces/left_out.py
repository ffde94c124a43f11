"""Why a proposer drafts nothing for a request, and whether that can end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A request that a proposer cannot draft for; see `Proposer.left_out`."""

    reason: str
    """Why, in a few words, such as "its cache has no room"."""
    can_return: bool = False
    """Whether the proposer could draft for it again if all its tokens were delivered from position 0. One that comes back
    by itself leaves this False, and the request out of `left_out` once it has."""
