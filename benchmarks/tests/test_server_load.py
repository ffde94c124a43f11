"""Findings that the load test derives from its observations."""

from __future__ import annotations

import json

import pytest
from load.client import request
from load.hostile import REFUSED
from load.load import Report
from server_load import findings, percentile

COUNTERS = {
    "vllm:kv_cache_usage_perc": 0.0, "specdec:proposer_errors_total": 3.0,
    "vllm:spec_decode_num_accepted_tokens_total": 9.0, "vllm:num_preemptions_total": 0.0,
}  # fmt: skip


def good() -> Report:
    return Report(num_right=5, health_s=[0.01] * 200, short_s=[0.5] * 20, rss=[1000] * 20)


def failed(report: Report, **counters: float) -> list[str]:
    gates = findings(report, COUNTERS | {name.replace("__", ":"): value for name, value in counters.items()})[
        "gates"
    ]
    return [name for name, is_passed in gates.items() if not is_passed]


def test_all_gates_can_pass_and_each_can_fail() -> None:
    assert failed(good()) == []
    wrong = good()
    wrong.num_wrong = 1
    assert failed(wrong) == ["no wrong token"]
    slow = good()
    slow.health_s += [0.2] * 10
    slow.short_s += [2.0]
    assert failed(slow) == ["p99 of /health under 100 ms", "p99 of two tokens under 1 s"]
    growing = good()
    growing.rss = [1000 + 10 * i for i in range(20)]
    growing.errors["503"] += 1
    growing.hostile["no JSON: 500, not 400"] += 1
    assert failed(growing, vllm__kv_cache_usage_perc=0.1) == [
        "no error that was not asked for", "hostile requests answered right", "nothing left in the cache",
        "memory flat within 5 %",
    ]  # fmt: skip


def test_percentiles() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0] * 99 + [5.0], 0.99) == 5.0


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_requests_are_whole_ones(name: str) -> None:
    body, status = REFUSED[name]
    head, _, sent = request("/v1/completions", body).partition(b"\r\n\r\n")
    assert f"Content-Length: {len(sent)}".encode() in head
    assert sent == (body if isinstance(body, bytes) else json.dumps(body).encode())
    assert 400 <= status < 500
