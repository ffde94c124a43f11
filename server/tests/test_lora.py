"""Adapters over HTTP: the model name of a request selects one."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from openai import NotFoundError, OpenAI
from servercheck.served import Served, serving
from speccheck.adapters import adapted_by_peft, make_adapters
from transformers import AutoTokenizer

import specdec_zoo
from specdec import ConfigError, SamplingParams
from specdec.reference import generate
from specdec_server import Settings, create_app

NAMES = ("zoo", "attention", "all", "head")
TEXT = "def main(argv):\n    parser = argv.parser\n    "
NUM_TOKENS = 20
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_adapters(tmp_path_factory.mktemp("adapters"))


@pytest.fixture(scope="module")
def served(folders: dict[str, Path]) -> Iterator[Served]:
    modules = [f"{name}={folder}" for name, folder in folders.items()]
    settings = Settings(model_names=("zoo",), log_every_s=0.0)
    with serving(settings, speculative_config=NGRAM, lora_modules=modules) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{served.url}/v1", api_key="EMPTY", max_retries=0) as found:
        yield found


def test_models_are_listed_with_their_parent(client: OpenAI, folders: dict[str, Path]) -> None:
    cards = {card.id: card.model_extra or {} for card in client.models.list().data}
    assert list(cards) == list(NAMES)
    assert [card["parent"] for card in cards.values()] == [None, "zoo", "zoo", "zoo"]
    assert [card["root"] for card in cards.values()] == ["zoo", *map(str, folders.values())]
    assert client.models.retrieve("all").id == "all"
    with pytest.raises(NotFoundError, match="no model 'al' here; served: zoo, attention, all, head"):
        client.completions.create(model="al", prompt="x")


def test_requests_at_once_have_the_text_of_their_adapter(client: OpenAI, folders: dict[str, Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)

    def expected(name: str, text: str) -> str:
        model = adapted_by_peft(folders.get(name))
        model = model if name == "zoo" else model.get_base_model()
        return str(tokenizer.decode(generate(model, tokenizer(text)["input_ids"], lambda *_: [], 0, params)))

    def answer(name: str) -> tuple[str, str, str]:
        asked = {
            "model": name,
            "temperature": 0,
            "max_tokens": NUM_TOKENS,
            "extra_body": {"ignore_eos": True},
        }
        whole = client.completions.create(prompt=TEXT, **asked)  # type: ignore[call-overload]
        stream = client.completions.create(prompt=TEXT, stream=True, **asked)  # type: ignore[call-overload]
        pieces = "".join(chunk.choices[0].text for chunk in stream)
        messages = [{"role": "user", "content": TEXT}]
        chat = client.chat.completions.create(messages=messages, **asked)  # type: ignore[call-overload]
        assert whole.model == chat.model == name
        return whole.choices[0].text, pieces, chat.choices[0].message.content

    with ThreadPoolExecutor(len(NAMES)) as threads:
        answers = dict(zip(NAMES, threads.map(answer, NAMES), strict=True))
    conversation = f"<user>{TEXT}\n<assistant>"
    for name in NAMES:
        completion = expected(name, TEXT)
        assert answers[name] == (completion, completion, expected(name, conversation))
    assert len({completion for completion, _, _ in answers.values()}) == len(NAMES)


def test_an_adapter_is_not_called_what_the_model_is(served: Served) -> None:
    with pytest.raises(ConfigError, match="--lora-modules: 'all' is the name of the model itself"):
        create_app(served.llm, Settings(model_names=("zoo", "all")))


@pytest.mark.slow
def test_the_command_serves_adapters(folders: dict[str, Path]) -> None:
    modules = [f"mine={folders['all']}", json.dumps({"name": "other", "path": str(folders["head"])})]
    specdec = str(Path(sys.executable).with_name("specdec"))
    command = [specdec, "serve", "zoo", "--lora-modules", *modules, "--port", "0", "--dtype", "float32"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            url = next(
                (found[0] for line in server.stderr if (found := re.findall(r"http://[\d.]+:\d+", line))), ""
            )
            with OpenAI(base_url=f"{url}/v1", api_key="EMPTY", max_retries=0) as llm:
                assert [card.id for card in llm.models.list().data] == ["zoo", "mine", "other"]
                texts = {
                    llm.completions.create(model=name, prompt=TEXT, max_tokens=NUM_TOKENS, temperature=0)
                    .choices[0]
                    .text
                    for name in ("zoo", "mine", "other")
                }
            assert len(texts) == 3
            server.send_signal(signal.SIGINT)
            rest = server.stderr.read()
            assert server.wait(timeout=30) == 0, rest
        finally:
            server.kill()
