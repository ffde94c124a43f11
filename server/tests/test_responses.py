"""`/v1/responses` through the official client."""

import json
from contextlib import ExitStack
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from servercheck.served import Served, serving

from specdec import LLM, SamplingParams
from specdec_server import Settings
from specdec_server.errors import ApiError
from specdec_server.message import MessageParser
from specdec_server.reasoning.think import ThinkParser
from specdec_server.responses import ResponseStore
from specdec_server.responses.items import messages_of
from specdec_server.responses.output import Output
from specdec_server.tools import Tool
from specdec_server.tools.hermes import HermesParser

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOLS: Any = [{"type": "function", "name": "add", "description": "Adds.", "parameters": ADD, "strict": True}]
ASKED: dict[str, Any] = {"model": "zoo", "input": "def main(", "temperature": 0, "max_output_tokens": 12}


def test_text_is_what_follows_the_template(client: OpenAI, llm: LLM) -> None:
    prompt = "<system>Write code.\n<user>def main(\n<assistant>"
    expected = llm.generate(prompt, SamplingParams(temperature=0.0, max_tokens=12))[0].outputs[0]
    got = client.responses.create(**ASKED, instructions="Write code.", metadata={"a": "b"})
    assert got.output_text == expected.text
    assert (got.status, got.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert got.usage.output_tokens == 12
    assert got.usage.total_tokens == got.usage.input_tokens + 12
    assert (got.instructions, got.metadata, got.store) == ("Write code.", {"a": "b"}, True)
    assert got.model_extra["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0


def test_a_stream_tells_of_the_same_response(client: OpenAI) -> None:
    whole = client.responses.create(**ASKED)
    events = list(client.responses.create(**ASKED, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.output_text.delta", "response.output_text.done", "response.content_part.done",
        "response.output_item.done", "response.incomplete",
    ]  # fmt: skip
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    last = events[-1].response
    assert text == last.output_text == whole.output_text
    assert last.usage.total_tokens == whole.usage.total_tokens
    form: Any = {"format": {"type": "json_schema", "name": "x", "schema": {"enum": ["yes"]}}}
    with client.responses.stream(**ASKED, extra_body={"text": form}) as stream:
        assert stream.get_final_response().output_text == '"yes"'


def test_calls_and_their_results(client: OpenAI, served: Served) -> None:
    asked = ASKED | {
        "tools": TOOLS,
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_output_tokens": 80,
    }
    whole = client.responses.create(**asked)
    (call,) = whole.output
    assert (call.type, call.name, whole.status) == ("function_call", "add", "completed")
    assert set(json.loads(call.arguments)) == {"a"}
    one_by_one = {"speculative": False}  # with drafts the whole of a known call may come in one step
    events = list(client.responses.create(**asked, stream=True, extra_body=one_by_one))
    pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(pieces) == call.arguments
    assert len(pieces) > 1
    done = next(event for event in events if event.type == "response.function_call_arguments.done")
    assert done.arguments == call.arguments
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "5"}
    went_on = client.responses.create(**ASKED | {"input": [result]}, previous_response_id=whole.id)
    again = client.responses.create(
        **ASKED | {"input": [{"role": "user", "content": "def main("}, *whole.output, result]}
    )
    assert went_on.previous_response_id == whole.id
    assert went_on.output_text == again.output_text, "what is kept and what is sent again are the same"
    assert went_on.usage.input_tokens == again.usage.input_tokens


def test_conversations_go_on(client: OpenAI, served: Served) -> None:
    first = client.responses.create(**ASKED, instructions="Not for long.")
    second = client.responses.create(**ASKED | {"input": "And then?"}, previous_response_id=first.id)
    messages = [
        {"role": "user", "content": "def main("},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "And then?"},
    ]
    chat = client.chat.completions.create(model="zoo", messages=messages, temperature=0, max_tokens=12)
    assert second.output_text == chat.choices[0].message.content
    assert client.responses.retrieve(first.id).output_text == first.output_text
    client.responses.delete(first.id)
    with pytest.raises(NotFoundError, match="there is no response"):
        client.responses.retrieve(first.id)
    with pytest.raises(BadRequestError, match="send the whole conversation as input"):
        client.responses.create(**ASKED, previous_response_id=first.id)
    kept = client.responses.create(**ASKED, store=False)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(kept.id)


def test_a_schema_is_kept_to(client: OpenAI) -> None:
    form: Any = {"format": {"type": "json_schema", "name": "x", "schema": {"enum": ["yes"]}, "strict": True}}
    got = client.responses.create(**ASKED | {"max_output_tokens": 60}, text=form)
    assert (got.output_text, got.status) == ('"yes"', "completed")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": [{"type": "input_image"}]}, "input[0]: type 'input_image'"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "'input_file' is not supported"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "call_id, name, arguments"),
        ({"tools": [{"type": "web_search"}]}, "'web_search'"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"conversation": "c"}, "conversation"),
        ({"include": ["message.output_text.logprobs"]}, "/v1/chat/completions"),
        ({"text": {"format": {"type": "json_schema"}}}, "needs a schema"),
        ({"n": 2}, "n: 2"),
        ({"top_logprobs": 3}, "top_logprobs"),
    ],
)
def test_what_is_wrong_is_told(served: Served, change: dict, message: str) -> None:
    status, told = served.error("/v1/responses", {"input": "x", "max_output_tokens": 2} | change)
    assert status == 400, told
    assert message in told


def test_every_kind_of_item_streams() -> None:
    parser = MessageParser(ThinkParser("<think>"), HermesParser([Tool("f")]))
    output = Output(parser)
    text = 'hm</think>Well.<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call><tool_call>{"name": "g"}</tool_call>'
    events = [event for char in text for event in output.add(parser.feed(char))]
    events += [*output.add(parser.end()), *output.close()]
    assert [item["type"] for item in output.items] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert all(item["status"] == "completed" for item in output.items)
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == output.items
    deltas: dict[int, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            deltas[event["output_index"]] = deltas.get(event["output_index"], "") + event["delta"]
    assert deltas == {0: "hm", 1: "Well.", 2: '{"a": 1}', 3: "{}"}
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    (message,) = messages_of(output.items)
    assert (message["reasoning"], message["content"]) == ("hm", "Well.")
    assert message["tool_calls"][0] == {**call, "id": output.items[2]["call_id"]}


def test_what_is_kept_is_bounded() -> None:
    store = ResponseStore(2, max_bytes=400)
    for name in "abc":
        store.put({"id": name}, [])
    with pytest.raises(ApiError, match="'a'"):
        store.get("a")
    assert store.get("b").response == {"id": "b"}
    store.put({"id": "d"}, [{"role": "user", "content": "x" * 350}])
    assert store.get("d").messages[0]["role"] == "user"
    store.put({"id": "e"}, [{"role": "user", "content": "x" * 350}])
    with pytest.raises(ApiError):
        store.get("d")
    store.put({"id": "f"}, [{"role": "user", "content": "x" * 500}])
    with pytest.raises(ApiError):
        store.get("f")
    none = ResponseStore(0)
    none.put({"id": "a"}, [])
    with pytest.raises(ApiError):
        none.get("a")


def test_bytes_come_back_when_a_response_is_overwritten_or_deleted() -> None:
    store = ResponseStore(10, max_bytes=1000)
    long = [{"role": "user", "content": "x" * 600}]
    for _ in range(5):  # clients may choose ids, and choose one again
        store.put({"id": "a"}, long)
    store.put({"id": "b"}, [{"role": "user", "content": "x" * 250}])
    assert store.get("a").messages == tuple(long)
    for _ in range(5):
        store.delete("a")
        store.put({"id": "a"}, long)
    assert store.get("b").response == {"id": "b"}
    with pytest.raises(ApiError):
        store.delete("c")


def test_what_is_stored_belongs_to_a_key() -> None:
    store = ResponseStore(4, max_bytes=2000)
    store.put({"id": "r", "of": "A"}, [{"role": "user", "content": "secret"}], "A")
    for ask in (store.get, store.delete):
        with pytest.raises(ApiError, match="there is no response 'r'"):
            ask("r", "B")
    with pytest.raises(ApiError, match="send the whole conversation"):
        store.get("r", "B", is_previous=True)
    store.put({"id": "r", "of": "B"}, [], "B")
    assert (store.get("r", "A").response["of"], store.get("r", "B").response["of"]) == ("A", "B")
    for place in range(20):  # who stores much makes room by losing what is theirs
        store.put({"id": f"many-{place}"}, [{"role": "user", "content": "x" * 300}], "B")
    assert store.get("r", "A").response["of"] == "A"
    with pytest.raises(ApiError):
        store.get("many-1", "B")
    assert store.get("many-19", "B").response == {"id": "many-19"}


def test_room_is_made_of_what_was_used_longest_ago() -> None:
    store = ResponseStore(2)
    for name in "ab":
        store.put({"id": name}, [])
    store.get("a")
    store.put({"id": "c"}, [])
    assert store.get("a").response == {"id": "a"}
    with pytest.raises(ApiError, match="'b'"):
        store.get("b")


def test_a_response_in_place_of_one_takes_only_its_own_bytes() -> None:
    store = ResponseStore(10, max_bytes=1000)
    long = [{"role": "user", "content": "x" * 400}]
    store.put({"id": "b"}, [])
    for _ in range(3):
        store.put({"id": "a"}, long)
    assert store.get("b").response == {"id": "b"}


def test_room_for_another_response_is_made_by_who_has_the_most_of_them() -> None:
    store = ResponseStore(3)
    store.put({"id": "long"}, [{"role": "user", "content": "x" * 300}], "A")
    for name in "abc":
        store.put({"id": name}, [], "B")
    assert store.get("long", "A").response == {"id": "long"}
    with pytest.raises(ApiError, match="'a'"):
        store.get("a", "B")


def test_two_keys_have_two_stores() -> None:
    with (
        serving(Settings(model_names=("zoo",), api_key=("A", "B"), log_every_s=0.0)) as served,
        ExitStack() as clients,
    ):
        a, b = (
            clients.enter_context(OpenAI(base_url=f"{served.url}/v1", api_key=key, max_retries=0))
            for key in "AB"
        )
        mine = a.responses.create(**ASKED, extra_body={"request_id": "same"})
        for ask in (b.responses.retrieve, b.responses.delete):
            with pytest.raises(NotFoundError, match="there is no response"):
                ask(mine.id)
        with pytest.raises(BadRequestError, match="send the whole conversation"):
            b.responses.create(**ASKED, previous_response_id=mine.id)
        other = b.responses.create(**ASKED | {"input": "import"}, extra_body={"request_id": "same"})
        assert other.id == mine.id
        assert a.responses.retrieve(mine.id).output_text == mine.output_text != other.output_text
        assert a.responses.create(**ASKED, previous_response_id=mine.id, stream=False).status == "incomplete"
