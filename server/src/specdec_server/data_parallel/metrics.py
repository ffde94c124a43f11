"""Merges the metrics of all engines into one page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from specdec_server.data_parallel.engines import Engines


class _Together(Collector):
    """Groups metrics of the same name, as Prometheus requires; the label `engine` distinguishes engines."""

    def __init__(self, engines: Engines, pages: Iterable[str]) -> None:
        self._engines, self._pages = engines, pages

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for page in self._pages:
            for family in text_string_to_metric_families(page):
                found.setdefault(family.name, family)
                if found[family.name] is not family:
                    found[family.name].samples += family.samples
        yield from found.values()
        up = GaugeMetricFamily("specdec:engine_up", "1 while the engine serves, else 0.", labels=["engine"])
        restarts = CounterMetricFamily(
            "specdec:engine_restarts", "Times that the engine was started again.", labels=["engine"]
        )
        for engine, num_restarts in zip(self._engines.all, self._engines.num_restarts, strict=True):
            up.add_metric([str(engine.index)], float(engine.is_ready))
            restarts.add_metric([str(engine.index)], num_restarts)
        yield from (up, restarts)


def merged_metrics(engines: Engines, pages: Iterable[str]) -> bytes:
    """Return one page in Prometheus' text format.

    Args:
        engines: whose state is added.
        pages: metrics pages of the engines that answered.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Together(engines, pages))
    return generate_latest(registry)
