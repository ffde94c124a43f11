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
        self._queries = counter(
            "vllm:prefix_cache_queries", "tokens of prompts looked for in the prefix cache"
        )
        self._hits = counter("vllm:prefix_cache_hits", "tokens of prompts found in the prefix cache")
        self._output_tokens = counter("vllm:generation_tokens", "tokens of responses")
        self._first_token = histogram("vllm:time_to_first_token_seconds", "from arrival to the first token")
        self._latency = histogram("vllm:e2e_request_latency_seconds", "from arrival to the end")
        self._per_token = histogram(
            "vllm:request_time_per_output_token_seconds", "of one request, behind its first token"
        )
        self._ends = Counter(
            "vllm:request_success",
            "samples that ended, by reason",
            [*_LABELS, "finished_reason"],
            registry=self._registry,
        )
        self._labels = labels

    def ended(self, output: RequestOutput) -> None:
        """Count a request that has ended."""
        self._latency.observe(output.metrics.total_time)
        self._count(output)
        first, longest = output.metrics.time_to_first_token, max(len(s.token_ids) for s in output.outputs)
        if first is not None and longest > 1:
            self._per_token.observe((output.metrics.total_time - first) / (longest - 1))
        for sample in output.outputs:
            self._ends.labels(**self._labels, finished_reason=sample.finish_reason or "abort").inc()

    def left(self, output: RequestOutput | None, num_samples: int, reason: str) -> None:
        """Count a request that ended before its text did.

        Args:
            output: the last that was seen of it, if anything was.
            num_samples: its samples.
            reason: `abort` or `error`.
        """
        if output is not None:
            self._count(output)
        self._ends.labels(**self._labels, finished_reason=reason).inc(num_samples)

    def _count(self, output: RequestOutput) -> None:
        self._prompt_tokens.inc(len(output.prompt_token_ids))
        self._queries.inc(len(output.prompt_token_ids))
        self._hits.inc(output.num_cached_tokens)
        if output.metrics.time_to_first_token is not None:
            self._first_token.observe(output.metrics.time_to_first_token)
        self._output_tokens.inc(sum(len(sample.token_ids) for sample in output.outputs))

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)
