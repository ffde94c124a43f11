"""Whether choosing is worth its own time."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.adaptive import Backoff

_DECAY = 0.97
_FEW = 16.0
"""Steps before the first judgement."""
_KEPT = 4.0
"""Steps that still count after a pause."""
_REST = 4
"""New requests end a pause of which this share, one in so many, is over: what they are may pay."""


class Worth:
    """Pauses all drafting at one batch size while steps without it, and without choosing, are faster."""

    def __init__(self) -> None:
        self.backoff = Backoff()
        self._steps = self._tokens = self._seconds = 0.0
        self._paused = 0
        self._has_paused = False
        self._ids: frozenset[str] = frozenset()

    def is_paused(self, request_ids: Sequence[str], plain_rate: float) -> bool:
        """Return whether this step drafts nothing.

        Args:
            request_ids: its requests.
            plain_rate: tokens per second of steps without drafts.
        """
        ids = frozenset(request_ids)
        if self.backoff.is_suspended:
            if not ids <= self._ids and _REST * self._paused >= self._paused + self.backoff.num_left:
                self.backoff.try_again()
                self._fade()
        elif self._steps >= _FEW or self._has_paused:
            speedup = self._tokens / (self._seconds * plain_rate) if self._seconds else 1.0
            if not self.backoff.decide(speedup):
                self._has_paused, self._paused = True, 0
        self._ids = ids
        return self.backoff.is_suspended

    def count_pause(self) -> None:
        """Count a step of a pause."""
        self._paused += 1
        if self.backoff.count_plain_step():
            self._fade()

    def count(self, tokens: float, seconds: float, overhead_s: float, *, has_nodes: bool) -> None:
        """Count a step in which was chosen.

        Args:
            tokens: those that were expected of it.
            seconds: its expected duration.
            overhead_s: duration of choosing, and of the members that run no model.
            has_nodes: whether anything was drafted.
        """
        self.backoff.count_drafted_step(has_nodes=has_nodes)
        self._steps = _DECAY * self._steps + 1.0
        self._tokens = _DECAY * self._tokens + tokens
        self._seconds = _DECAY * self._seconds + seconds + overhead_s

    def _fade(self) -> None:
        share = min(1.0, _KEPT / self._steps) if self._steps else 1.0
        self._steps, self._tokens, self._seconds = (
            share * each for each in (self._steps, self._tokens, self._seconds)
        )
