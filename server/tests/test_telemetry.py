"""What `/metrics` tells, and that the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

from servercheck.served import Served

from specdec.engine.metrics import EngineMetrics
from specdec.engine.step import Step
from specdec.metrics import BOUNDS_S, Gauge, Metric
from specdec.outputs import CompletionOutput, RequestMetrics, RequestOutput
from specdec_server.descriptions import ENGINE_METRICS
from specdec_server.telemetry import Telemetry

DASHBOARD = Path(__file__).parents[1] / "container/grafana/specdec.json"
LABELS = '{engine="0",model_name="m"}'


def output(num_tokens: int, reason: str | None) -> RequestOutput:
    metrics = RequestMetrics(2, 8, 5, [2, 2, 1], 0.5, 2.5, 0.2)
    samples = [CompletionOutput(0, "", list(range(num_tokens)), reason)]
    return RequestOutput("r", None, [1, 2, 3], samples, reason is not None, metrics, num_cached_tokens=2)


def numbers(telemetry: Telemetry) -> dict[str, float]:
    lines = [line for line in telemetry.text().decode().splitlines() if line[0] != "#"]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def engine_metrics() -> list[Metric]:
    engine = EngineMetrics()
    step = Step([])
    step.schedule_s, step.propose_s, step.score_s, step.verify_s, step.commit_s = 1e-3, 2e-3, 3e-2, 4e-3, 5e-3
    engine.count_step(step)
    engine.count_draft("first", 4, 3)
    engine.count_draft("second", 2, 0)
    for seconds in (0.0004, 0.004, 0.004, 20.0):
        engine.count_time_between_tokens(seconds)
    gauges = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    return [*engine.snapshot(), *(Gauge(f"vllm:{name}", 0.25) for name in gauges)]


def test_the_engine_s_numbers() -> None:
    told = numbers(Telemetry(engine_metrics, "m"))
    assert told[f"vllm:kv_cache_usage_perc{LABELS}"] == 0.25
    seconds = [
        told[f"specdec:{part}_seconds_total{LABELS}"]
        for part in ("schedule", "propose", "score", "verify", "commit")
    ]
    assert seconds == [0.001, 0.002, 0.03, 0.004, 0.005]

    def drafted(what: str) -> list[float]:
        """Of all drafts, then of each proposer."""
        by = [f'{{engine="0",model_name="m",proposer="{name}"}}' for name in ("first", "second")]
        names = [
            f"vllm:spec_decode_num_{what}_total{LABELS}",
            *(f"specdec:proposer_{what}_total{b}" for b in by),
        ]
        return [told[name] for name in names]

    assert [drafted(what) for what in ("drafts", "draft_tokens", "accepted_tokens")] == [
        [2, 1, 1],
        [6, 4, 2],
        [3, 3, 0],
    ]

    def bucket(bound: str) -> float:
        return told[f'vllm:inter_token_latency_seconds_bucket{{engine="0",le="{bound}",model_name="m"}}']

    assert [bucket(str(BOUNDS_S[0])), bucket("0.0025"), bucket("0.005"), bucket("10.0"), bucket("+Inf")] == [
        1,
        1,
        3,
        3,
        4,
    ]
    assert told[f"vllm:inter_token_latency_seconds_count{LABELS}"] == 4
    assert told[f"vllm:inter_token_latency_seconds_sum{LABELS}"] == 20.0084


def test_requests_are_counted_when_they_end() -> None:
    telemetry = Telemetry(list, "m")
    before = numbers(telemetry)
    assert before['vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"}'] == 0
    telemetry.ended(output(5, "stop"))
    telemetry.left(output(1, None), 1, "abort")
    telemetry.left(None, 2, "error")
    telemetry.refused(429)
    told = numbers(telemetry)

    def num_ended(reason: str) -> float:
        return told[f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="m"}}']

    assert [num_ended(reason) for reason in ("stop", "length", "abort", "error")] == [1, 0, 1, 2]
    sums = {
        "queue_time_seconds": 0.2, "prefill_time_seconds": 0.3, "decode_time_seconds": 2.0, "inference_time_seconds": 2.3,
        "prompt_tokens": 3, "generation_tokens": 5, "params_n": 1,
    }  # fmt: skip
    assert {name: told[f"vllm:request_{name}_sum{LABELS}"] for name in sums} == sums
    assert told[f"vllm:prefix_cache_hits_total{LABELS}"] == 4
    assert told['specdec:requests_refused_total{engine="0",model_name="m",status="429"}'] == 1
    assert telemetry.num_ended == 3


def test_every_metric_says_what_it_counts(served: Served) -> None:
    text = served.ask("/metrics")[1]
    told = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    assert len(told) > 40
    for name, sentence in told.items():
        assert re.fullmatch(r"[A-Z].{12,}\.", sentence), name
        words = name.partition(":")[2].removesuffix("_total").replace("_", " ")
        assert words not in sentence, f"{name} says no more than its name"
    names = {name.removesuffix("_total") for name in told}
    only_on_a_gpu = {name for name in ENGINE_METRICS if name.startswith("specdec:graph_")}
    assert set(ENGINE_METRICS) - names == only_on_a_gpu, "descriptions of metrics that there are not"
    form = (Path(str(files("specdec_kernels"))) / "cuda/form.py").read_text()
    assert {f"specdec:{name}" for name in re.findall(r'"(graph_\w+)":', form)} == only_on_a_gpu
    tokens, size = (
        served.counters()[f'specdec:kv_cache_{unit}{{engine="0",model_name="zoo"}}']
        for unit in ("tokens", "bytes")
    )
    assert tokens >= 1024
    assert size / tokens == 15 * 2 * 2 * 64 * 4, "layers, keys and values, heads, width, float32"


def test_the_dashboard_asks_for_what_there_is() -> None:
    telemetry = Telemetry(engine_metrics, "m")
    telemetry.refused(429)
    known = {name.partition("{")[0] for name in numbers(telemetry)}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    questions = [target["expr"] for panel in panels for target in panel["targets"]]
    asked = {name for question in questions for name in re.findall(r"(?:vllm|specdec):\w+", question)}
    assert asked - known == set()
    assert len(asked) > 20
