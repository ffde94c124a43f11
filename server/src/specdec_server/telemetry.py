"""What `/metrics` tells, under vLLM's names where it has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from specdec import RequestOutput
from specdec.engine.metrics import Gauge, Vector
from specdec.engine.metrics import Metric as EngineMetric

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_LABELS = ("model_name", "engine")
_ENGINE = "0"


class _EngineCollector(Collector):
    """Reads the engine's own numbers when somebody asks.

    Args:
        read: returns them.
        model_name: the label of all.
    """

    def __init__(self, read: Callable[[], Sequence[EngineMetric]], model_name: str) -> None:
        self._read, self._labels = read, [model_name, _ENGINE]

    def collect(self) -> Iterator[Metric]:
        """Yield every number as Prometheus has it."""
        for metric in self._read():
            about = metric.name.partition(":")[2].replace("_", " ")
            if isinstance(metric, Vector):
                family = CounterMetricFamily(metric.name, about, labels=[*_LABELS, "position"])
                for position, value in enumerate(metric.values):
                    family.add_metric([*self._labels, str(position)], value)
                yield family
                continue
            kind = GaugeMetricFamily if isinstance(metric, Gauge) else CounterMetricFamily
            single = kind(metric.name, about, labels=_LABELS)
            single.add_metric(self._labels, metric.value)
            yield single


class Telemetry:
    """Counts requests and their times.

    Args:
        read: returns the engine's own numbers.
        model_name: what the model is called.
    """

    def __init__(self, read: Callable[[], Sequence[EngineMetric]], model_name: str) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(read, model_name))
        labels = {"model_name": model_name, "engine": _ENGINE}

        def counter(name: str, about: str) -> Counter:
            return Counter(name, about, _LABELS, registry=self._registry).labels(**labels)

        def histogram(name: str, about: str) -> Histogram:
            found = Histogram(name, about, _LABELS, registry=self._registry, buckets=_SECONDS)
            return found.labels(**labels)

        self._prompt_tokens = counter("vllm:prompt_tokens", "tokens of prompts")
        self._cached_tokens = counter("vllm:prefix_cache_hits", "tokens of prompts found in the prefix cache")
        self._output_tokens = counter("vllm:generation_tokens", "tokens of responses")
        self._first_token = histogram("vllm:time_to_first_token_seconds", "from arrival to the first token")
        self._latency = histogram("vllm:e2e_request_latency_seconds", "from arrival to the end")
        self._ends = Counter(
            "vllm:request_success",
            "samples that ended, by reason",
            [*_LABELS, "finished_reason"],
            registry=self._registry,
        )
        self._labels = labels
        self.num_running = 0
        """Requests that have not ended."""

    def began(self, count: int) -> None:
        """Count requests that begin."""
        self.num_running += count

    def left(self, count: int) -> None:
        """Count requests that nobody waits for any more."""
        self.num_running -= count
        if count:
            self._ends.labels(**self._labels, finished_reason="abort").inc(count)

    def ended(self, output: RequestOutput) -> None:
        """Count a request that has ended."""
        self.num_running -= 1
        self._prompt_tokens.inc(len(output.prompt_token_ids))
        self._cached_tokens.inc(output.num_cached_tokens)
        self._latency.observe(output.metrics.total_time)
        if output.metrics.time_to_first_token is not None:
            self._first_token.observe(output.metrics.time_to_first_token)
        for sample in output.outputs:
            self._output_tokens.inc(len(sample.token_ids))
            self._ends.labels(**self._labels, finished_reason=sample.finish_reason or "abort").inc()

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)
