"""Exports the engine's metrics to Ray, which collects those of all replicas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from specdec.metrics import Counter, Gauge, Metric, PerProposer, Vector
from specdec_server.descriptions import about, labelled

logger = logging.getLogger("specdec")

EVERY_S = 2.0
"""Seconds between two reads of the engine's metrics."""


class MetricExport:
    """Exports the engine's counters and gauges to Ray, under their names with `_` in place of `:`.

    Args:
        make_counter: creates a Ray counter from a name, a description and tag keys.
        make_gauge: creates a Ray gauge from the same arguments.
    """

    def __init__(self, make_counter: Callable[..., Any], make_gauge: Callable[..., Any]) -> None:
        self._makers: dict[bool, Callable[..., Any]] = {False: make_counter, True: make_gauge}
        self._made: dict[str, Any] = {}
        self._last: dict[tuple[str, ...], float] = {}

    def update(self, metrics: Sequence[Metric]) -> None:
        """Export the engine's current metrics, without its histograms, since Ray measures latencies itself."""
        for name, tags, value, is_gauge in _flat(metrics):
            made = self._made.get(name)
            if made is None:
                keys = tuple(tags)
                description = about(name.replace("_", ":", 1))
                made = self._made[name] = self._makers[is_gauge](name, description=description, tag_keys=keys)
            if is_gauge:
                made.set(value, tags=tags)
                continue
            place = (name, *tags.values())
            grown = value - self._last.get(place, 0.0)
            self._last[place] = value
            if grown > 0:
                made.inc(grown, tags=tags)


async def export_metrics(read: Callable[[], Sequence[Metric]]) -> None:
    """Export an engine's metrics periodically until cancelled; errors are logged once.

    Args:
        read: returns the engine's metrics.
    """
    from ray.serve import metrics  # type: ignore[import-not-found]  # an extra

    export = MetricExport(metrics.Counter, metrics.Gauge)
    has_failed = False
    while True:
        try:
            export.update(read())
        except Exception:
            if not has_failed:
                logger.exception("the engine's metrics do not reach Ray (logged once)")
            has_failed = True
        await asyncio.sleep(EVERY_S)


def _flat(metrics: Sequence[Metric]) -> Iterator[tuple[str, dict[str, str], float, bool]]:
    for metric in metrics:
        name = metric.name.replace(":", "_")
        if isinstance(metric, Vector | PerProposer):
            label, counts = labelled(metric)
            for value, count in counts.items():
                yield name, {label: value}, float(count), False
        elif isinstance(metric, Counter | Gauge):
            yield name, {}, float(metric.value), isinstance(metric, Gauge)
