"""Replaces the target's weights under an engine, and lets it sleep."""

from __future__ import annotations

from specdec.assembly.opening import named
from specdec.engine.scheduler import Scheduler
from specdec.errors import ConfigError
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.scorer import Scorer, Weights
from specdec.interfaces.target import TargetHandle

_ASLEEP = "the engine sleeps: call wake_up() first"
_EMPTY = "sleep(level=2) dropped the weights: call update_weights() first"


class TargetWeights:
    """The target's weights during an engine's life. They change between requests only.

    Args:
        scorer: has them.
        scheduler: accepts requests while they are there.
        proposer: follows them; None without speculation.
    """

    def __init__(self, scorer: Scorer, scheduler: Scheduler, proposer: Proposer | None) -> None:
        self._scorer, self._scheduler, self._proposer = scorer, scheduler, proposer
        self._is_dropped = False

    @property
    def is_sleeping(self) -> bool:
        """Whether requests are refused until `wake_up`."""
        return self._scheduler.closed == _ASLEEP

    def update(self, weights: Weights) -> None:
        """Replace the weights; see `LLM.update_weights`."""
        if self.is_sleeping:
            raise ConfigError(f"LLM.update_weights: {_ASLEEP}")
        self._check_idle("update_weights")
        self._scorer.update_weights(weights, self._tell)
        self._scheduler.closed, self._is_dropped = None, False

    def sleep(self, level: int) -> None:
        """Give memory back; see `LLM.sleep`."""
        if level not in (1, 2):
            raise ConfigError(
                f"LLM.sleep: level={level!r} must be 1 (weights are kept) or 2 (they are dropped)"
            )
        self._check_idle("sleep")
        if not self._is_dropped and not self.is_sleeping:
            self._scorer.sleep(level, self._tell)
            self._is_dropped = level == 2
        self._scheduler.closed = _ASLEEP

    def wake_up(self) -> None:
        """Take requests again; see `LLM.wake_up`."""
        if not self.is_sleeping:
            return
        if not self._is_dropped:
            self._scorer.wake_up(self._tell)
        self._scheduler.closed = _EMPTY if self._is_dropped else None

    def _check_idle(self, what: str) -> None:
        count = len(self._scheduler.running) + self._scheduler.waiting.num_samples
        if count:
            raise ConfigError(
                f"LLM.{what}: {count} samples run or wait: let their requests end, or abort them"
            )

    def _tell(self, target: TargetHandle | None) -> None:
        """Forget rows of the old weights, and tell the proposer."""
        self._scheduler.reset_prefix_cache()
        proposer = self._proposer
        if proposer is not None:
            named(type(proposer), "weights_changed", lambda: proposer.weights_changed(target))
