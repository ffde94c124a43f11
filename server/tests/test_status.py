import http.client
import json
import time
from urllib.parse import urlparse

import pytest
from openai import AuthenticationError, OpenAI
from servercheck.served import Served, serving

from specdec import LLM
from specdec_server import Settings

LABELS = '{engine="0",model_name="zoo"}'


def test_models_are_listed(client: OpenAI) -> None:
    assert [model.id for model in client.models.list().data] == ["zoo", "small"]
    assert client.completions.create(model="small", prompt="x", max_tokens=1).model == "small"


def test_health_version_and_schema(served: Served) -> None:
    assert served.ask("/health")[0] == 200
    assert served.ask("/version") == (200, {"version": "0.1.0"})
    assert "CompletionRequest" in served.ask("/openapi.json")[1]["components"]["schemas"]


def test_tokens_there_and_back(served: Served, llm: LLM) -> None:
    tokenizer = llm.get_tokenizer()
    ids = tokenizer("def main(")["input_ids"]
    _, told = served.ask("/tokenize", {"prompt": "def main(", "return_token_strs": True})
    assert told == {
        "count": len(ids),
        "max_model_len": 1024,
        "tokens": ids,
        "token_strs": tokenizer.convert_ids_to_tokens(ids),
    }
    assert served.ask("/detokenize", {"tokens": ids}) == (200, {"prompt": "def main("})
    _, told = served.ask("/tokenize", {"messages": [{"role": "user", "content": "hi"}]})
    assert served.ask("/detokenize", {"tokens": told["tokens"]})[1]["prompt"] == "<user>hi\n<assistant>"
    assert served.error("/detokenize", {"tokens": [10**6]})[0] == 400
    assert served.error("/tokenize", {})[0] == 400


def test_counters_tell_what_was_done(served: Served) -> None:
    before = served.counters()
    body = {
        "prompt": "import os\nimport sys\n\n\ndef read_lines(path):\n",
        "temperature": 0,
        "max_tokens": 40,
    }
    _, answer = served.ask("/v1/completions", body)
    after = served.counters()

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    told = answer["metrics"]["speculative_decoding"]
    assert grown(f"vllm:spec_decode_num_drafts_total{LABELS}") == told["num_spec_steps"] > 0
    assert grown(f"vllm:spec_decode_num_draft_tokens_total{LABELS}") == told["num_draft_tokens"]
    assert grown(f"vllm:spec_decode_num_accepted_tokens_total{LABELS}") == told["num_accepted_draft_tokens"]
    by_position = [
        grown(
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="zoo",position="{i}"}}'
        )
        for i in range(4)
    ]
    assert sum(by_position) == told["num_accepted_draft_tokens"]
    assert grown(f"vllm:generation_tokens_total{LABELS}") == answer["usage"]["completion_tokens"]
    assert grown(f"vllm:prompt_tokens_total{LABELS}") == answer["usage"]["prompt_tokens"]
    assert grown(f"vllm:e2e_request_latency_seconds_count{LABELS}") == 1
    assert grown('vllm:request_success_total{engine="0",finished_reason="length",model_name="zoo"}') == 1
    assert after[f"vllm:num_requests_running{LABELS}"] == 0


@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_client_that_leaves_ends_its_request(served: Served, is_streaming: bool) -> None:
    where = urlparse(served.url)
    aborted = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="zoo"}'
    before = served.counters().get(aborted, 0.0)
    connection = http.client.HTTPConnection(where.hostname, where.port)
    body = {"prompt": "def main(", "max_tokens": 1000, "ignore_eos": True, "stream": is_streaming, "n": 8}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    if is_streaming:
        answer = connection.getresponse()
        assert answer.readline().startswith(b"data: ")
        answer.close()
    else:
        time.sleep(0.2)
    connection.close()
    deadline = time.monotonic() + 20
    while (counters := served.counters())[f"vllm:num_requests_running{LABELS}"] or counters.get(
        aborted
    ) == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert counters[aborted] == before + 1
    steps = counters[f"specdec:num_steps_total{LABELS}"]
    time.sleep(0.2)
    assert served.counters()[f"specdec:num_steps_total{LABELS}"] == steps


def test_a_stream_ends_with_done(served: Served) -> None:
    events = served.events("/v1/completions", {"prompt": "def main(", "max_tokens": 4, "stream": True})
    assert events[-1] == "[DONE]"
    assert all(json.loads(event)["object"] == "text_completion" for event in events[:-1])


def test_only_who_has_the_key_gets_in() -> None:
    settings = Settings(model_names=("zoo",), api_key="sesame", log_every_s=0.0)
    with serving(settings) as served:
        with pytest.raises(AuthenticationError, match="key is missing or wrong"):
            OpenAI(base_url=f"{served.url}/v1", api_key="other", max_retries=0).models.list()
        assert OpenAI(base_url=f"{served.url}/v1", api_key="sesame").models.list().data[0].id == "zoo"
        assert served.error("/v1/completions", {"prompt": "x"})[0] == 401
        assert served.error("/tokenize", {"prompt": "x"})[0] == 401
        assert served.ask("/health")[0] == 200


def test_an_engine_that_failed_is_told() -> None:
    with serving(Settings(model_names=("zoo",), log_every_s=0.0)) as served:

        def fail() -> None:
            raise OSError("the device is gone")

        served.llm._built.engine.step = fail
        status, told = served.error("/v1/completions", {"prompt": "x"})
        assert status == 500
        assert "the device is gone" in told
        assert served.ask("/health")[0] == 503
        assert served.error("/v1/completions", {"prompt": "x", "stream": True})[0] == 500
