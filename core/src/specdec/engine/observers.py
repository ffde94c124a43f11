"""Tells observers what happened, whatever they do then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from specdec.engine.metrics import EngineMetrics
from specdec.engine.request import Request
from specdec.errors import described, is_interrupt, line_of
from specdec.interfaces.observer import RequestStats, StepStats
from specdec.outputs import RequestOutput
from specdec.registry.plugin_call import call_plugin

if TYPE_CHECKING:
    import pluggy

logger = logging.getLogger("specdec")


class Observers:
    """Calls the observer hooks; what they raise is counted, and logged once.

    Args:
        hooks: of the plugins that listen.
        metrics: errors are counted there.
    """

    def __init__(self, hooks: pluggy.HookRelay, metrics: EngineMetrics) -> None:
        self._hooks, self._metrics = hooks, metrics

    def step_finished(self, stats: StepStats) -> None:
        """Tell of a step."""
        self._tell(self._hooks.specdec_step_finished, stats)

    def request_finished(self, request: Request, output: RequestOutput) -> None:
        """Tell of each sample of a request that ended."""
        metrics = output.metrics
        for sequence in request.sequences:
            assert sequence.finish_reason is not None
            stats = RequestStats(
                request_id=sequence.request_id,
                num_prompt_tokens=sequence.num_prompt_tokens,
                num_output_tokens=sequence.num_output_tokens,
                num_drafts=sequence.drafts.num_drafts,
                num_draft_tokens=sequence.drafts.num_draft_tokens,
                num_accepted_tokens=sequence.drafts.num_accepted_tokens,
                time_to_first_token_ms=1e3 * (metrics.time_to_first_token or 0.0),
                total_ms=1e3 * metrics.total_time,
                finish_reason=sequence.finish_reason,
            )
            self._tell(self._hooks.specdec_request_finished, stats)

    def _tell(self, hook: pluggy.HookCaller, stats: StepStats | RequestStats) -> None:
        """Call each observer, the last registered first."""
        for observer in reversed(hook.get_hookimpls()):
            try:
                _, changed = call_plugin(observer.function, *[stats] * len(observer.argnames))
                problem = f"changed {', '.join(changed)}, which is put back" if changed else None
            except BaseException as error:
                if is_interrupt(error):
                    raise
                problem = f"raised {described(error)}{line_of(error)}"
            if problem is not None:
                self._metrics.observer_errors += 1
                if self._metrics.observer_errors == 1:
                    logger.error(
                        "observer %s %s; output is not affected, this is logged once and counted",
                        observer.plugin_name, problem,
                    )  # fmt: skip
