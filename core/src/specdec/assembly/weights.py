"""Replaces the target's weights under an engine, and lets it sleep."""

from __future__ import annotations

from collections.abc import Callable

from specdec.assembly.opening import named
from specdec.engine.scheduler import Scheduler
from specdec.errors import ConfigError, PluginError, described
from specdec.interfaces.proposer import Proposer
from specdec.interfaces.scorer import Scorer, Tell, Weights
from specdec.interfaces.target import TargetHandle

_ASLEEP = "the engine sleeps: call wake_up() first"
_EMPTY = "sleep(level=2) dropped the weights: call update_weights() first"
_HALF = "an update of the weights ended half-way: call update_weights() again"


class TargetWeights:
    """The target's weights during an engine's life. They change between requests only.

    Args:
        scorer: has them.
        scheduler: accepts requests while they are there.
        proposer: follows them; None without speculation.
    """

    def __init__(self, scorer: Scorer, scheduler: Scheduler, proposer: Proposer | None) -> None:
        self._scorer, self._scheduler, self._proposer = scorer, scheduler, proposer
        self._missing: str | None = None
        """Why requests wait for `update`; None while the weights are whole."""

    @property
    def is_sleeping(self) -> bool:
        """Whether requests are refused until `wake_up`."""
        return self._scheduler.closed == _ASLEEP

    def update(self, weights: Weights) -> None:
        """Replace the weights; see `LLM.update_weights`."""
        if self.is_sleeping:
            raise ConfigError(f"LLM.update_weights: {_ASLEEP}")
        self._check_idle("update_weights")
        self._change(
            lambda tell: self._scorer.update_weights(weights, tell),
            (_HALF, _HALF), (None, None), "update_weights: the weights are new; the proposer does not follow",
        )  # fmt: skip

    def sleep(self, level: int) -> None:
        """Give memory back; see `LLM.sleep`."""
        if level not in (1, 2):
            raise ConfigError(
                f"LLM.sleep: level={level!r} must be 1 (weights are kept) or 2 (they are dropped)"
            )
        self._check_idle("sleep")
        after = _ASLEEP, _EMPTY if level == 2 else self._missing
        if self._missing == _EMPTY or (self.is_sleeping and level == 1):
            self._scheduler.closed = _ASLEEP
        else:
            self._change(
                lambda tell: self._scorer.sleep(level, tell),
                after, after, "sleep: the engine sleeps; the proposer may not have let go of its memory",
            )  # fmt: skip

    def wake_up(self) -> None:
        """Take requests again; see `LLM.wake_up`."""
        if not self.is_sleeping:
            return
        if self._missing is not None:
            self._scheduler.closed = self._missing
        else:
            self._change(
                self._scorer.wake_up,
                (_ASLEEP, None), (None, None), "wake_up: the weights are back; the proposer does not follow",
            )  # fmt: skip

    def _check_idle(self, what: str) -> None:
        count = len(self._scheduler.running) + self._scheduler.waiting.num_samples
        if count:
            raise ConfigError(
                f"LLM.{what}: {count} samples run or wait: let their requests end, or abort them"
            )

    def _change(
        self,
        change: Callable[[Tell], None],
        during: tuple[str, str | None],
        after: tuple[str | None, str | None],
        failure: str,
    ) -> None:
        """Let the scorer change the weights; what the proposer raises meanwhile is raised when all is done.

        Args:
            change: called with `Scorer.update_weights`' `tell`.
            during: why requests are refused, and wait for `update`, from the first call of `tell` on; they stay if it raises.
            after: the same, once all is done.
            failure: what to say of the proposer's error.
        """
        error: Exception | None = None

        def tell(target: TargetHandle | None) -> bool:
            nonlocal error
            error = None
            self._scheduler.closed, self._missing = during
            self._scheduler.reset_prefix_cache()
            proposer = self._proposer
            if proposer is not None:
                try:
                    named(type(proposer), "weights_changed", lambda: proposer.weights_changed(target))
                except Exception as raised:
                    error = raised
            return error is None

        change(tell)
        self._scheduler.closed, self._missing = after
        if error is not None:
            raise PluginError(f"LLM.{failure}: {described(error)}") from error
