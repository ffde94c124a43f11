"""What of Ray Serve's application needs no Ray; `full_ray.py` beside this runs it on the real one."""

import asyncio
import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from specdec import ConfigError
from specdec.metrics import Counter, Gauge, Histogram, PerProposer, Vector
from specdec_server.ray import app
from specdec_server.ray.arguments import VARIABLE, read_arguments
from specdec_server.ray.metrics import MetricExport, export_metrics
from specdec_server.ray.replica import Replica


def test_arguments_are_split_and_read_from_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_API_KEY", "k")
    given = {
        "model": "zoo",
        "num-replicas": "2",
        "speculative_config": '{"method": "ngram"}',
        "dtype": "float32",
    }
    found = read_arguments(given)
    assert (found.model, found.num_replicas, found.api_key) == ("zoo", 2, "k")
    assert found.of_llm == {"speculative_config": {"method": "ngram"}, "dtype": "float32"}
    assert found.scale == {"num_replicas": 2}
    assert "api_key" not in repr(found)


def test_the_environment_completes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, '{"model": "smollm2", "max_num_seqs": 8}')
    found = read_arguments({"model": "zoo", "chat_template": "{{ 1 }}"})
    assert (found.model, found.of_llm, found.chat_template) == ("zoo", {"max_num_seqs": 8}, "{{ 1 }}")


def test_autoscaling() -> None:
    found = read_arguments({"min_replicas": 0, "max_replicas": 4, "target_ongoing_requests": "8"})
    bounds = {"min_replicas": 0, "max_replicas": 4, "target_ongoing_requests": 8.0}
    assert found.scale == {"autoscaling_config": bounds}
    assert read_arguments({}).scale == {"num_replicas": 1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_replicas": 0}, "num_replicas = 0"),
        ({"num_replicas": 2, "max_replicas": 4}, "give one"),
        ({"min_replicas": 3, "max_replicas": 2}, "max_replicas = 2 is below min_replicas = 3"),
        ({"min_replicas": 3}, "min_replicas belongs to autoscaling: give max_replicas"),
        ({"num_replicas": 3, "target_ongoing_requests": 2}, "target_ongoing_requests belongs to autoscaling"),
        ({"num_cpus": "many"}, "num_cpus = 'many'"),
    ],
)
def test_mistakes_name_the_argument(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_arguments(given)


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_wrong_variable_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ConfigError, match=VARIABLE):
        read_arguments({})


def test_without_ray_the_remedy_is_named() -> None:
    assert importlib.util.find_spec("ray") is None
    with pytest.raises(ConfigError, match=r'pip install "specdec-server\[ray\]"'):
        app({"model": "zoo"})


class Recorded:
    """Stands in for a metric of Ray."""

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        self.name, self.tag_keys = name, tag_keys
        self.calls: list[tuple[str, float, dict[str, str]]] = []
        MADE[name] = self

    def inc(self, value: float, tags: dict[str, str]) -> None:
        self.calls.append(("inc", value, tags))

    def set(self, value: float, tags: dict[str, str]) -> None:
        self.calls.append(("set", value, tags))


MADE: dict[str, Recorded] = {}


def test_counters_are_handed_on_as_growth() -> None:
    MADE.clear()
    export = MetricExport(Recorded, Recorded)
    for drafts, running, positions in ((3, 1, [3, 1]), (3, 2, [3, 1]), (7, 0, [6, 2, 1])):
        export.update(
            [
                Counter("vllm:spec_decode_num_drafts", drafts),
                Gauge("vllm:num_requests_running", running),
                Vector("vllm:accepted_per_pos", positions),
                PerProposer("specdec:proposer_drafts", {"a": drafts, "b": 1}),
                Histogram("vllm:latency", (1.0,), [0, 0], 0.0),
            ]
        )
    names = {"vllm_spec_decode_num_drafts", "vllm_num_requests_running", "vllm_accepted_per_pos"}
    assert set(MADE) == names | {"specdec_proposer_drafts"}
    assert MADE["specdec_proposer_drafts"].tag_keys == ("proposer",)
    assert MADE["specdec_proposer_drafts"].calls == [
        ("inc", 3.0, {"proposer": "a"}),
        ("inc", 1.0, {"proposer": "b"}),
        ("inc", 4.0, {"proposer": "a"}),
    ]
    assert MADE["vllm_spec_decode_num_drafts"].calls == [("inc", 3.0, {}), ("inc", 4.0, {})]
    assert [value for _, value, _ in MADE["vllm_num_requests_running"].calls] == [1.0, 2.0, 0.0]
    assert MADE["vllm_accepted_per_pos"].tag_keys == ("position",)
    assert MADE["vllm_accepted_per_pos"].calls == [
        ("inc", 3.0, {"position": "0"}),
        ("inc", 1.0, {"position": "1"}),
        ("inc", 3.0, {"position": "0"}),
        ("inc", 1.0, {"position": "1"}),
        ("inc", 1.0, {"position": "2"}),
    ]


def test_metrics_go_on_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    MADE.clear()
    serve: Any = ModuleType("ray.serve")
    serve.metrics = SimpleNamespace(Counter=Recorded, Gauge=Recorded)
    monkeypatch.setitem(sys.modules, "ray.serve", serve)
    monkeypatch.setattr("specdec_server.ray.metrics.EVERY_S", 0.0)
    looks = iter([None, [Counter("vllm:drafts", 3)], None])

    def read() -> list[Any]:
        try:
            found = next(looks)
        except StopIteration:
            raise asyncio.CancelledError from None
        if found is None:
            raise RuntimeError("not now")
        return found

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(export_metrics(read))
    assert MADE["vllm_drafts"].calls == [("inc", 3.0, {})]
    assert caplog.text.count("the engine's metrics do not reach Ray") == 1


def test_a_replica_serves_and_tells_whether_it_is_well() -> None:
    """The application is asked as Ray asks it: by ASGI, without a socket."""
    import httpx2

    replica = Replica(read_arguments({"model": "zoo", "dtype": "float32", "served_model_name": "code"}))
    served = replica.__serve_build_asgi_app__()
    replica.check_health()

    async def ask() -> dict[str, Any]:
        transport = httpx2.ASGITransport(app=served)
        async with httpx2.AsyncClient(transport=transport, base_url="http://replica") as client:
            body = {"prompt": "def main(", "max_tokens": 4, "temperature": 0}
            answer: dict[str, Any] = (await client.post("/v1/completions", json=body)).json()
            return answer

    answer = asyncio.run(ask())
    assert answer["model"] == "code"
    assert answer["usage"]["completion_tokens"] == 4
    served.state.service.close()
    with pytest.raises(RuntimeError, match="the engine has failed"):
        replica.check_health()
