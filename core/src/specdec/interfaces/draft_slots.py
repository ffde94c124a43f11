"""The slots of the target's cache that drafts may write, and those that they may read."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.errors import PluginError


class DraftSlots:
    """Which slots a proposer with `Capability.TARGET_CACHE` may write in one step; empty between its calls.

    It may read those of a request before them, which have the rows of its committed tokens but the last."""

    def __init__(self) -> None:
        self._spans: dict[int, tuple[int, int]] = {}

    def open(self, first_slots: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> None:
        """Allow positions `starts[i]` to `ends[i] - 1` of the requests whose position 0 is in `first_slots[i]`."""
        self._spans = {
            first: (start, end) for first, start, end in zip(first_slots, starts, ends, strict=True)
        }

    def close(self) -> None:
        """Allow nothing."""
        self._spans = {}

    def check(self, first_slot: int, start: int, end: int) -> None:
        """Check that positions `start` to `end - 1` of the request at `first_slot` may be written.

        Raises:
            PluginError: if not.
        """
        least, most = self._spans.get(first_slot, (0, 0))
        if not least <= start <= end <= most:
            allowed = f"{least} to {most - 1}" if most else "none"
            raise PluginError(
                f"a draft on the target's cache would write positions {start} to {end - 1} of the request at slot "
                f"{first_slot}, where {allowed} are reserved for it: start at the last committed token, and draft at most "
                "max(max_nodes) tokens in rows that want a draft"
            )

    def check_read(self, first_slot: int, start: int, end: int) -> None:
        """Check that positions `start` to `end - 1` of the request at `first_slot` may be read.

        Raises:
            PluginError: if not.
        """
        most = self._spans.get(first_slot, (0, 0))[0]
        if not 0 <= start <= end <= most:
            raise PluginError(
                f"a draft would read positions {start} to {end - 1} of the request at slot {first_slot} from the target's "
                f"cache, which has {most} rows for it: all committed tokens but the last, in rows that want a draft"
            )
