import json

import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from servercheck.served import Served

from specdec import LLM, SamplingParams

PROMPTS = ["def main(", "import os\nimport sys\n\n\ndef read_lines(path):\n", "class Reader:\n"]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_text_is_that_of_the_engine_without_drafts(client: OpenAI, llm: LLM, temperature: float) -> None:
    expected = llm.generate(PROMPTS, SamplingParams(temperature=temperature, seed=3, max_tokens=24))
    got = client.completions.create(
        model="zoo", prompt=PROMPTS, temperature=temperature, seed=3, max_tokens=24
    )
    assert [choice.text for choice in got.choices] == [output.outputs[0].text for output in expected]
    assert [choice.index for choice in got.choices] == [0, 1, 2]
    assert got.object == "text_completion"
    assert got.model == "zoo"
    assert got.usage is not None
    assert got.usage.prompt_tokens == sum(len(output.prompt_token_ids) for output in expected)
    assert got.usage.completion_tokens == sum(len(output.outputs[0].token_ids) for output in expected)
    assert got.usage.total_tokens == got.usage.prompt_tokens + got.usage.completion_tokens


def test_a_stream_is_the_same_text_in_pieces(client: OpenAI) -> None:
    asked = {"model": "zoo", "prompt": PROMPTS, "temperature": 0.8, "seed": 5, "max_tokens": 24, "n": 2}
    whole = client.completions.create(**asked)
    texts, ends = [""] * 6, {}
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
    assert texts == [choice.text for choice in whole.choices]
    assert ends == {choice.index: choice.finish_reason for choice in whole.choices}
    assert len(set(texts)) == 6


def test_usage_ends_a_stream_if_asked_for(client: OpenAI) -> None:
    asked = {"model": "zoo", "prompt": "def main(", "max_tokens": 12, "temperature": 0.0}
    whole = client.completions.create(**asked)
    chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 12
    assert all(chunk.usage is None for chunk in chunks[:-1])


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_usage_may_stand_in_every_piece(served: Served, path: str) -> None:
    asked = (
        {"prompt": ["def main(", "x = "]}
        if path == "completions"
        else {"messages": [{"role": "user", "content": "x"}]}
    )
    options = {"continuous_usage_stats": True, "include_usage": True}
    body = asked | {"max_tokens": 6, "ignore_eos": True, "stream": True, "stream_options": options}
    events = [json.loads(event) for event in served.events(f"/v1/{path}", body)[:-1]]
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)
    most = 12 if path == "completions" else 6
    assert counts[-2:] == [most, most]
    assert events[-1]["choices"] == []


def test_prompts_may_be_token_ids(client: OpenAI, llm: LLM) -> None:
    ids = llm.get_tokenizer()("def main(")["input_ids"]
    asked = {"model": "zoo", "max_tokens": 8, "temperature": 0.0}
    texts = [
        client.completions.create(**asked, prompt=prompt).choices[0].text
        for prompt in ("def main(", ids, [ids])
    ]
    assert texts[0] == texts[1] == texts[2]


def test_a_stop_string_ends_the_text_and_is_told(served: Served, llm: LLM) -> None:
    text = llm.generate("def main(", SamplingParams(temperature=0.0, max_tokens=32))[0].outputs[0].text
    stop = text[6:9]
    body = {"prompt": "def main(", "temperature": 0, "max_tokens": 32, "stop": [stop]}
    status, answer = served.ask("/v1/completions", body)
    (choice,) = answer["choices"]
    assert status == 200
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (
        text[: text.index(stop)],
        "stop",
        stop,
    )


def test_log_probabilities_are_those_of_the_engine(client: OpenAI, llm: LLM) -> None:
    expected = llm.generate("def main(", SamplingParams(temperature=0.0, max_tokens=6, logprobs=2))[
        0
    ].outputs[0]
    found = client.completions.create(
        model="zoo", prompt="def main(", temperature=0, max_tokens=6, logprobs=2
    ).choices[0]
    assert found.logprobs is not None
    assert expected.logprobs is not None
    assert found.logprobs.token_logprobs == pytest.approx(
        [entry[token].logprob for token, entry in zip(expected.token_ids, expected.logprobs, strict=True)]
    )
    assert "".join(found.logprobs.tokens or []) == found.text
    assert found.logprobs.text_offset == [
        sum(map(len, (found.logprobs.tokens or [])[:place])) for place in range(6)
    ]
    assert all(len(top) == 2 for top in found.logprobs.top_logprobs or [])


def test_echo_begins_with_the_prompt_and_knows_its_log_probabilities(served: Served, llm: LLM) -> None:
    body = {"prompt": "def main(", "temperature": 0, "max_tokens": 4, "logprobs": 0, "echo": True}
    choice = served.ask("/v1/completions", body)[1]["choices"][0]
    ids = llm.get_tokenizer()("def main(")["input_ids"]
    scored = llm.generate("def main(", SamplingParams(max_tokens=1, prompt_logprobs=0))[0].prompt_logprobs
    assert choice["text"].startswith("def main(")
    assert "prompt_logprobs" not in choice  # that is another field, and nobody asked for it
    assert len(choice["text"]) > len("def main(")
    told = choice["logprobs"]["token_logprobs"]
    assert len(told) == len(ids) + 4
    assert told[0] is None
    assert told[1 : len(ids)] == pytest.approx(
        [entry[i].logprob for i, entry in zip(ids[1:], scored[1:], strict=True)]
    )


def test_echo_of_a_prompt_that_was_cut_is_what_is_left(served: Served) -> None:
    body = {
        "prompt": "def foo(a, b): return a",
        "max_tokens": 2,
        "temperature": 0,
        "logprobs": 1,
        "echo": True,
    }
    choice = served.ask("/v1/completions", body | {"truncate_prompt_tokens": 3})[1]["choices"][0]
    assert choice["text"] == "".join(choice["logprobs"]["tokens"])


def test_no_tokens_and_echo_is_the_prompt_alone(served: Served) -> None:
    body = {"prompt": "def main(", "max_tokens": 0, "logprobs": 1, "echo": True}
    _, answer = served.ask("/v1/completions", body)
    assert answer["choices"][0]["text"] == "def main("
    assert answer["usage"]["completion_tokens"] == 0
    assert len(answer["choices"][0]["logprobs"]["tokens"]) == answer["usage"]["prompt_tokens"]


def test_token_ids_are_told_if_asked_for(served: Served, llm: LLM) -> None:
    expected = llm.generate("def main(", SamplingParams(temperature=0.0, max_tokens=6))[0]
    body = {"prompt": "def main(", "temperature": 0, "max_tokens": 6, "return_token_ids": True}
    choice = served.ask("/v1/completions", body)[1]["choices"][0]
    assert choice["token_ids"] == expected.outputs[0].token_ids
    assert choice["prompt_token_ids"] == expected.prompt_token_ids


def test_json_is_kept_to(client: OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "pair", "schema": schema}}
    got = client.completions.create(
        model="zoo", prompt="x = ", max_tokens=40, seed=1, extra_body={"response_format": form}
    )
    assert got.choices[0].text.replace(" ", "").replace("\n", "") in ('{"a":1}', '{"a":2}')


def test_speculation_can_be_turned_off_and_what_it_did_is_told(served: Served) -> None:
    body = {"prompt": PROMPTS[1], "temperature": 0, "max_tokens": 48}
    _, answer = served.ask("/v1/completions", body)
    told = answer["metrics"]["speculative_decoding"]
    assert told["num_spec_steps"] > 0
    assert told["mean_acceptance_length"] == pytest.approx(
        1 + told["num_accepted_draft_tokens"] / told["num_spec_steps"]
    )
    assert told["tokens_per_step"] == pytest.approx(48 / told["num_steps"])
    assert sum(told["acceptance_histogram"]) == told["num_spec_steps"]
    kept = sum(place * count for place, count in enumerate(told["acceptance_histogram"]))
    assert kept == told["num_accepted_draft_tokens"]
    _, plain = served.ask("/v1/completions", body | {"speculative": False})
    assert plain["metrics"]["speculative_decoding"]["num_spec_steps"] == 0
    assert plain["choices"][0]["text"] == answer["choices"][0]["text"]


def test_what_is_wrong_is_told(client: OpenAI, served: Served) -> None:
    with pytest.raises(NotFoundError, match="no model 'gpt-4' here; served: zoo, small"):
        client.completions.create(model="gpt-4", prompt="x")
    with pytest.raises(BadRequestError, match="max_tokens"):
        client.completions.create(model="zoo", prompt="x", max_tokens=-1)
    for field, value, message in (
        ("top_pp", 0.5, "knows no field 'top_pp': did you mean 'top_p'"),
        ("best_of", 3, "best_of = 3"),
        ("suffix", "end", "suffix"),
        ("temperature", "hot", "temperature"),
        ("prompt", [], "prompt is an empty list"),
        ("prompt", [5, 10**6], "outside the vocabulary"),
        ("prompt", "x " * 3000, "max_model_len"),
        ("prompt", 5, "prompt: 5 is not what it should be: a valid string or a valid list"),
        ("prompt", "a\ud800", "an unpaired surrogate"),
        ("stream", "perhaps", "stream"),
        ("n", 10**8, "n = 100000000 is above 128"),
        ("n", 0, "n"),
        ("logprobs", 1000, "--max-logprobs"),
        ("logprobs", -1, "--max-logprobs"),
        ("prompt_logprobs", 21, "--max-logprobs"),
        ("stream_options", {"include_usage": True}, "stream_options needs stream"),
        ("max_completion_tokens", 5, "use max_tokens"),
        ("guided_json", {}, "structured_outputs"),
        ("use_beam_search", True, "no beam search"),
        ("request_id", "a\nb", "request_id"),
        ("bad_words", ["\ud800"], "an unpaired surrogate"),
    ):
        status, told = served.error("/v1/completions", {"prompt": "x", field: value})
        assert status == 400, told
        assert message in told
    assert served.error("/v1/completions", {})[0] == 400
    assert "not JSON" in served.error("/v1/completions", b"{")[1]
    assert served.error("/v1/embeddings", {})[0] == 404
    assert (
        "Content-Type" in served.error("/v1/completions", {"prompt": "x"}, {"Content-Type": "text/plain"})[1]
    )
    assert served.error("/v1/completions", {"prompt": "x"}, {"Content-Encoding": "gzip"})[0] == 415
    assert "more than 4096" in served.error("/v1/completions", {"prompt": ["x"] * 100, "n": 100})[1]
    both = {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "b"}}
    assert "give one" in served.error("/v1/completions", {"prompt": "x"} | both)[1]
    _, answer = served.ask("/v1/completions", {"prompt": "x", "temperature": -1})
    assert answer["error"]["param"] == "temperature"


def test_one_bad_prompt_of_several_stops_none_half_way(served: Served) -> None:
    before = served.counters()
    body = {"prompt": ["def main(", "x " * 3000], "stream": True}
    status, told = served.error("/v1/completions", body)
    assert status == 400
    assert "max_model_len" in told
    after = served.counters()
    name = 'vllm:generation_tokens_total{engine="0",model_name="zoo"}'
    assert after[name] == before[name]


def test_a_request_may_choose_a_loaded_method(served: Served) -> None:
    body = {"prompt": PROMPTS[1], "temperature": 0, "max_tokens": 48}
    chosen = {"method": "ngram", "num_speculative_tokens": 2, "args": {}}
    _, answer = served.ask("/v1/completions", body | {"speculative": chosen, "return_draft_steps": True})
    drafted = [step["draft_token_ids"] for step in answer["choices"][0]["draft_steps"]]
    assert max(map(len, drafted)) == 2
    for asked, message in (
        ({"method": "suffix"}, "'method' is 'suffix'; methods that are loaded: ngram"),
        ({"args": {"depth": 3}}, "args of 'ngram': unknown key 'depth'"),
        ({"args": 3}, "args must be a Mapping"),
        ({"k": 3}, "supports method, num_speculative_tokens, args"),
    ):
        status, told = served.ask("/v1/completions", body | {"speculative": asked})
        assert status == 400
        assert message in told["error"]["message"]
