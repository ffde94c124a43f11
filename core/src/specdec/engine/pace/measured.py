"""What has been measured, recent observations counting most."""

from __future__ import annotations

_KEPT = 0.98
"""What is left of an observation's weight after one more; about fifty count."""
_KEPT_OF_DEPTH = 0.95
_FEW = 8
_OUTLIER = 4.0
"""An observation that is above what was expected by more than this factor is taken to be this far above it."""


class Mean:
    """A decayed mean.

    Args:
        kept: what is left of an observation's weight after one more.
    """

    def __init__(self, kept: float = _KEPT) -> None:
        self._kept_share = kept
        self.count = 0
        self._weight = self._sum = 0.0

    def observe(self, value: float) -> None:
        """Take in one value."""
        self.count += 1
        self._weight = self._kept_share * self._weight + 1.0
        self._sum = self._kept_share * self._sum + value

    @property
    def value(self) -> float:
        """The mean; 0 before the first value."""
        return self._sum / self._weight if self._weight else 0.0


class SteadyMean(Mean):
    """A decayed mean that one odd value does not move far."""

    def observe(self, value: float) -> None:
        """Take in one value, no more than a few times what was expected; the first is forgotten: it may be a warm-up."""
        if self.count == 1:
            self._weight = self._sum = 0.0
        super().observe(min(value, _OUTLIER * self.value) if self.count >= _FEW else value)


class ByDepth:
    """What steps have cost, by the depth of their drafts."""

    def __init__(self) -> None:
        self._means: dict[int, SteadyMean] = {}

    def observe(self, depth: int, seconds: float) -> None:
        """Take in one step."""
        if depth not in self._means:
            self._means[depth] = SteadyMean(_KEPT_OF_DEPTH)
        self._means[depth].observe(seconds)

    def upto(self, deepest: int, start: float) -> list[float]:
        """Return the seconds of depths 1 to `deepest`; those not seen lie on lines between those seen.

        Args:
            deepest: the last depth.
            start: seconds at depth 0, from where the line to the first depth begins.
        """
        found: list[float] = []
        for depth in sorted(self._means):
            seconds = max(self._means[depth].value, found[-1] if found else start)
            before, gap = (found[-1] if found else start), depth - len(found)
            found += [before + (seconds - before) * (i + 1) / gap for i in range(gap)]
        last = found[-1] if found else start
        rise = (last - start) / len(found) if found else 0.0
        return (found + [last + rise * (i + 1) for i in range(deepest - len(found))])[:deepest]
