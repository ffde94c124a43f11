"""Metrics for `/metrics`, under vLLM's names where they exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from specdec import RequestOutput
from specdec.metrics import Gauge, PerProposer, Vector
from specdec.metrics import Histogram as EngineHistogram
from specdec.metrics import Metric as EngineMetric
from specdec_server.descriptions import about, labelled

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_TOKENS = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))
_SAMPLES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_REASONS = ("stop", "length", "abort", "error")
_LABELS = ("model_name", "engine")


class _EngineCollector(Collector):
    """Reads the engine's own metrics on each scrape.

    Args:
        read: returns the metrics.
        labels: label values of all metrics.
    """

    def __init__(self, read: Callable[[], Sequence[EngineMetric]], labels: Sequence[str]) -> None:
        self._read, self._labels = read, labels

    def collect(self) -> Iterator[Metric]:
        """Yield every metric as a Prometheus metric family."""
        for metric in self._read():
            if isinstance(metric, Vector | PerProposer):
                label, counts = labelled(metric)
                family = CounterMetricFamily(metric.name, about(metric.name), labels=[*_LABELS, label])
                for place, value in counts.items():
                    family.add_metric([*self._labels, place], value)
                yield family
                continue
            if isinstance(metric, EngineHistogram):
                yield self._histogram(metric)
                continue
            kind = GaugeMetricFamily if isinstance(metric, Gauge) else CounterMetricFamily
            single = kind(metric.name, about(metric.name), labels=_LABELS)
            single.add_metric(self._labels, metric.value)
            yield single

    def _histogram(self, metric: EngineHistogram) -> Metric:
        bounds = [*map(str, metric.bounds), "+Inf"]
        family = HistogramMetricFamily(metric.name, about(metric.name), labels=_LABELS)
        family.add_metric(
            self._labels, list(zip(bounds, accumulate(metric.counts), strict=True)), metric.total
        )
        return family


class Telemetry:
    """Counts requests and measures their latencies.

    Args:
        read: returns the engine's own metrics.
        model_name: value of the label `model_name`.
        engine: the number of the engine among several behind one address.
    """

    def __init__(self, read: Callable[[], Sequence[EngineMetric]], model_name: str, engine: int = 0) -> None:
        self._registry = CollectorRegistry()
        labels = {"model_name": model_name, "engine": str(engine)}
        self._registry.register(_EngineCollector(read, list(labels.values())))

        def counter(name: str, description: str) -> Counter:
            return Counter(name, description, _LABELS, registry=self._registry).labels(**labels)

        def histogram(name: str, description: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            found = Histogram(name, description, _LABELS, registry=self._registry, buckets=buckets)
            return found.labels(**labels)

        self._prompt_tokens = counter("vllm:prompt_tokens", "Tokens of the prompts of ended requests.")
        self._queries = counter(
            "vllm:prefix_cache_queries", "Tokens of prompts looked up in the prefix cache."
        )
        self._hits = counter(
            "vllm:prefix_cache_hits",
            "Tokens of prompts found in the prefix cache of the target and the proposer.",
        )
        self._output_tokens = counter("vllm:generation_tokens", "Tokens of the samples of ended requests.")
        self._first_token = histogram(
            "vllm:time_to_first_token_seconds", "Seconds from a request's arrival to its first token."
        )
        self._latency = histogram(
            "vllm:e2e_request_latency_seconds", "Seconds from a request's arrival to its end."
        )
        self._per_token = histogram(
            "vllm:request_time_per_output_token_seconds",
            "Seconds per token of a request's longest sample, after its first token.",
        )
        self._queued = histogram(
            "vllm:request_queue_time_seconds", "Seconds from a request's arrival until it ran."
        )
        self._prefill = histogram(
            "vllm:request_prefill_time_seconds", "Seconds from when a request ran to its first token."
        )
        self._decode = histogram(
            "vllm:request_decode_time_seconds", "Seconds from a request's first token to its end."
        )
        self._inference = histogram(
            "vllm:request_inference_time_seconds", "Seconds from when a request ran to its end."
        )
        self._prompt_lengths = histogram(
            "vllm:request_prompt_tokens", "Tokens of the prompt of a finished request.", _TOKENS
        )
        self._output_lengths = histogram(
            "vllm:request_generation_tokens", "Tokens of a sample of a finished request.", _TOKENS
        )
        self._samples = histogram(
            "vllm:request_params_n", "Samples asked for by a finished request.", _SAMPLES
        )
        self._refused = Counter(
            "specdec:requests_refused",
            "HTTP requests answered with a status of 400 or more, by that status.",
            [*_LABELS, "status"],
            registry=self._registry,
        )
        self.num_ended = 0
        """Engine requests that have ended."""
        self._ends = Counter(
            "vllm:request_success",
            "Samples that ended, by the reason.",
            [*_LABELS, "finished_reason"],
            registry=self._registry,
        )
        self._labels = labels
        for reason in _REASONS:  # rates need an initial zero
            self._ends.labels(**labels, finished_reason=reason)

    def refused(self, status: int) -> None:
        """Count a request that was answered with an error."""
        self._refused.labels(**self._labels, status=str(status)).inc()

    def ended(self, output: RequestOutput) -> None:
        """Count a finished request."""
        self._latency.observe(output.metrics.total_time)
        self._count(output)
        self._observe_phases(output)
        first, longest = output.metrics.time_to_first_token, max(len(s.token_ids) for s in output.outputs)
        if first is not None and longest > 1:
            self._per_token.observe((output.metrics.total_time - first) / (longest - 1))
        for sample in output.outputs:
            self._ends.labels(**self._labels, finished_reason=sample.finish_reason or "abort").inc()

    def left(self, output: RequestOutput | None, num_samples: int, reason: str) -> None:
        """Count a request that was aborted or failed.

        Args:
            output: its last output, if there was one.
            num_samples: its number of samples.
            reason: `abort` or `error`.
        """
        if output is not None:
            self._count(output)
        self.num_ended += 1
        self._ends.labels(**self._labels, finished_reason=reason).inc(num_samples)

    def _observe_phases(self, output: RequestOutput) -> None:
        metrics = output.metrics
        self.num_ended += 1
        self._prompt_lengths.observe(len(output.prompt_token_ids))
        self._samples.observe(len(output.outputs))
        for sample in output.outputs:
            self._output_lengths.observe(len(sample.token_ids))
        queued, first = metrics.queue_time, metrics.time_to_first_token
        if queued is None:
            return
        self._queued.observe(queued)
        self._inference.observe(metrics.total_time - queued)
        if first is not None:
            self._prefill.observe(first - queued)
            self._decode.observe(metrics.total_time - first)

    def _count(self, output: RequestOutput) -> None:
        self._prompt_tokens.inc(len(output.prompt_token_ids))
        self._queries.inc(len(output.prompt_token_ids))
        self._hits.inc(output.num_cached_tokens)
        if output.metrics.time_to_first_token is not None:
            self._first_token.observe(output.metrics.time_to_first_token)
        self._output_tokens.inc(sum(len(sample.token_ids) for sample in output.outputs))

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
