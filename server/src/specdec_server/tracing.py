"""An OpenTelemetry span for each request that reaches the engine, if the package is installed."""

from __future__ import annotations

from importlib import import_module
from time import time_ns
from typing import Any

from starlette.datastructures import Headers

from specdec import ConfigError, __version__
from specdec_server.record import RequestRecord

_INSTALL = (
    "--otlp-traces-endpoint needs OpenTelemetry: pip install opentelemetry-sdk opentelemetry-exporter-otlp"
)


class Tracing:
    """Creates spans. Without an endpoint the process's own tracer provider sends them, if there is one.

    Args:
        endpoint: OTLP endpoint for spans over HTTP or, with URL scheme `grpc`, gRPC; None for no exporter.
        provider: tracer provider; None uses the endpoint's, or the process's own.

    Raises:
        ConfigError: if an endpoint is given but the exporter packages are not installed.
    """

    def __init__(self, endpoint: str | None = None, provider: Any = None) -> None:
        self._provider = provider if endpoint is None else _exporting(endpoint)
        self._api: Any = None
        try:
            self._api = import_module("opentelemetry.trace")
            self._propagate = import_module("opentelemetry.propagate")
        except ImportError:
            return
        self._tracer = self._api.get_tracer("specdec", __version__, tracer_provider=self._provider)

    @staticmethod
    def now() -> int:
        """Return the current time for spans, in nanoseconds."""
        return time_ns()

    def ended(self, record: RequestRecord, headers: Headers, started: int) -> None:
        """Create the span of a finished request; requests that never reached the engine have none.

        Args:
            record: of the request.
            headers: of the request; may contain the parent span.
            started: arrival time, from `now`.
        """
        if self._api is None or not record.outputs:
            return
        span = self._tracer.start_span(
            "llm_request",
            context=self._propagate.extract(dict(headers)),
            kind=self._api.SpanKind.SERVER,
            attributes=attributes_of(record),
            start_time=started,
        )
        span.end()

    def close(self) -> None:
        """Send pending spans and shut down."""
        if self._provider is not None and hasattr(self._provider, "shutdown"):
            self._provider.shutdown()


def attributes_of(record: RequestRecord) -> dict[str, str | int | float]:
    """Return the attributes of a span, under vLLM's names where they exist."""
    outputs = list(record.outputs.values())
    all_metrics = [output.metrics for output in outputs]
    found: dict[str, str | int | float] = {
        "gen_ai.request.id": record.request_id,
        "gen_ai.request.n": sum(len(output.outputs) for output in outputs),
        "gen_ai.usage.prompt_tokens": sum(len(output.prompt_token_ids) for output in outputs),
        "gen_ai.usage.completion_tokens": sum(
            len(sample.token_ids) for output in outputs for sample in output.outputs
        ),
        "gen_ai.latency.e2e": record.seconds,
        "specdec.num_draft_tokens": sum(metrics.num_draft_tokens for metrics in all_metrics),
        "specdec.num_accepted_tokens": sum(metrics.num_accepted_tokens for metrics in all_metrics),
        "http.response.status_code": record.status or 499,
    }
    queued = [metrics.queue_time for metrics in all_metrics if metrics.queue_time is not None]
    firsts = [
        metrics.time_to_first_token for metrics in all_metrics if metrics.time_to_first_token is not None
    ]
    if queued:
        found["gen_ai.latency.time_in_queue"] = max(queued)
    if firsts:
        found["gen_ai.latency.time_to_first_token"] = min(firsts)
    return found


def check_packages(endpoint: str | None) -> None:
    """Check that spans can be sent to an endpoint.

    Raises:
        ConfigError: if packages are missing.
    """
    if endpoint is not None:
        _packages(endpoint)


def _packages(endpoint: str) -> tuple[Any, Any, Any, Any]:
    exporter = "grpc" if endpoint.startswith("grpc://") else "http"
    try:
        return (
            import_module("opentelemetry.sdk.resources"),
            import_module("opentelemetry.sdk.trace"),
            import_module("opentelemetry.sdk.trace.export"),
            import_module(f"opentelemetry.exporter.otlp.proto.{exporter}.trace_exporter"),
        )
    except ImportError as error:
        raise ConfigError(f"{_INSTALL} ({error})") from None


def _exporting(endpoint: str) -> Any:
    """Return a tracer provider that sends spans to an endpoint."""
    resources, trace, export, exporters = _packages(endpoint)
    if endpoint.startswith("grpc://"):
        exporter = exporters.OTLPSpanExporter(endpoint=endpoint.removeprefix("grpc://"), insecure=True)
    else:
        exporter = exporters.OTLPSpanExporter(endpoint=endpoint)
    provider = trace.TracerProvider(resource=resources.Resource.create({"service.name": "specdec"}))
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    return provider
