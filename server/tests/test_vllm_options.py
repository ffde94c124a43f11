"""Operations and options of vLLM's server: load, the prefix cache, salts, defaults of requests, a Unix socket."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from servercheck.served import TEMPLATE, Served, serving

from specdec import ConfigError
from specdec_server import Settings
from specdec_server.http import Http
from specdec_server.launch import check_template_variables, generation_defaults

LONG = "def main(arguments):\n    return arguments\n\n" * 8


def cached(served: Served, **keys: Any) -> int:
    """Return how many tokens of a long prompt were cached."""
    body = {"prompt": LONG, "max_tokens": 1, "temperature": 0} | keys
    status, answer = served.ask("/v1/completions", body)
    assert status == 200, answer
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def reset(served: Served, query: str = "") -> bool:
    status, answer = served.ask(f"/reset_prefix_cache{query}", b"")
    assert status == 200
    return answer["success"]


def test_the_prefix_cache_is_forgotten(served: Served) -> None:
    cached(served)
    assert cached(served) > 0
    assert reset(served) is True
    assert cached(served) == 0
    assert cached(served) > 0


def test_it_is_kept_while_requests_run(served: Served) -> None:
    body: dict[str, Any] = {"prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": True, "n": 32}
    with httpx2.stream("POST", f"{served.url}/v1/completions", json=body, timeout=60) as answer:
        lines = answer.iter_lines()  # which closes the stream when it is gone
        next(lines)
        assert served.ask("/load") == (200, {"server_load": 1})
        cached(served)
        assert reset(served) is False
        assert cached(served) > 0
        assert reset(served, "?reset_running_requests=true") is True
        assert cached(served) == 0
    body |= {"max_tokens": 1, "n": 1}
    served.events("/v1/completions", body)
    assert served.ask("/load") == (200, {"server_load": 0})


def test_salts_divide_the_prefix_cache(served: Served) -> None:
    """Both of text and of token ids; without a salt is a salt of its own."""
    reset(served)
    ids = served.llm.get_tokenizer()(LONG)["input_ids"]
    for keys in ({"cache_salt": "a"}, {"cache_salt": "b"}, {}):
        assert cached(served, **keys) == 0
        assert cached(served, **keys) > 0
        assert cached(served, prompt=ids, **keys) > 0


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_conversations_have_salts(served: Served, path: str) -> None:
    reset(served)
    input_ = {"input": LONG} if path == "responses" else {"messages": [{"role": "user", "content": LONG}]}
    body = {"temperature": 0, "max_output_tokens" if path == "responses" else "max_tokens": 2} | input_
    seen = []
    for salt in ("a", "a", "b"):
        status, answer = served.ask(f"/v1/{path}", body | {"cache_salt": salt})
        assert status == 200
        usage = answer["usage"]
        seen.append(
            usage.get("prompt_tokens_details", usage.get("input_tokens_details"))["cached_tokens"] > 0
        )
    assert seen == [False, True, False]


@pytest.mark.parametrize("salt", ["", "x" * 129, "a/b", "a@b", "a\\b", "a\0b", 5])
def test_a_salt_that_vllm_refuses_is_refused(served: Served, salt: object) -> None:
    status, answer = served.ask("/v1/completions", {"prompt": "x", "cache_salt": salt})
    assert status == 400
    assert "cache_salt" in answer["error"]["message"]


def test_requests_have_the_servers_defaults() -> None:
    """What a request gives itself wins, but for the most tokens."""
    template = "{% if enable_thinking %}think {% endif %}" + TEMPLATE
    settings = Settings(
        model_names=("zoo",),
        log_every_s=0.0,
        chat_template_kwargs={"enable_thinking": True},
        **generation_defaults('{"temperature": 0, "max_new_tokens": 5}'),
    )
    with serving(settings, template=template) as served:
        body: dict[str, Any] = {"prompt": "def main(", "ignore_eos": True, "max_tokens": 9}
        texts = [served.ask("/v1/completions", body)[1]["choices"][0]["text"] for _ in range(3)]
        assert len(set(texts)) == 1, "greedy, as the server's default"
        drawn = [served.ask("/v1/completions", body | {"temperature": 1.5, "seed": s})[1] for s in range(4)]
        assert len({answer["choices"][0]["text"] for answer in drawn}) > 1
        assert {answer["usage"]["completion_tokens"] for answer in drawn} == {5}

        messages = [{"role": "user", "content": "x"}]
        asked = {"messages": messages, "max_completion_tokens": 2}
        base = served.ask("/tokenize", {"messages": messages})[1]["count"]
        for given, is_thinking in (
            ({}, True),
            ({"chat_template_kwargs": {"enable_thinking": False}}, False),
            ({"reasoning_effort": "none"}, False),
            ({"reasoning_effort": "high"}, True),
        ):
            count = served.ask("/v1/chat/completions", asked | given)[1]["usage"]["prompt_tokens"]
            assert (count == base) == is_thinking
        with pytest.raises(ConfigError, match=r"--default-chat-template-kwargs: .*'enable_thinkin'"):
            check_template_variables(served.llm, {"enable_thinkin": True})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is not a JSON object"),
        ('{"n": 2}', "'n' is none of repetition_penalty, "),
        ('{"temperature": -1}', "--override-generation-config: .*temperature"),
        ('{"max_new_tokens": 0}', "--override-generation-config: .*max_tokens"),
    ],
)
def test_wrong_defaults_are_told(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        generation_defaults(text)


def http_at(path: Path) -> Http:
    return Http("127.0.0.1", 8000, "info", "", None, None, uds=str(path))


def test_a_server_listens_at_a_unix_socket(served: Served, tmp_path: Path) -> None:
    http = http_at(tmp_path / "s.sock")
    http.check()
    with http.bound() as listener:
        config = http.config(served.app, Settings(model_names=("zoo",)).limits, has_lifespan=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=http.uds, retries=20)) as client:
            while not server.started:
                pass
            assert client.get("http://localhost/health").status_code == 200
            with pytest.raises(ConfigError, match=r"--uds: cannot listen at .*in use.*choose another path"):
                http.check()
        server.should_exit = True
        thread.join()
    assert not Path(str(http.uds)).exists()


def test_a_socket_that_nobody_listens_at_any_more_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    http_at(path).check()
    path.write_text("a file")
    with pytest.raises(ConfigError, match="--uds"):
        http_at(path).check()
    assert path.read_text() == "a file"
    with pytest.raises(ConfigError, match="--uds"):
        http_at(tmp_path / "no" / "folder").check()
