"""Prompts as token ids: chats, texts, and prompts that are too long."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from common.model import resolve_model, zoo_artefact
from common.prompts import load_prompts
from transformers import AutoTokenizer

import specdec_zoo

TARGET = specdec_zoo.path("target").resolve()


def file_of(folder: Path, *rows: dict[str, object]) -> Path:
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_texts_are_asked_as_chats_and_ids_taken_as_they_are(tmp_path: Path) -> None:
    file = file_of(
        tmp_path,
        {"turns": ["Write a loop.", "Now another."]},
        {"prompt": "Write a loop."},
        {"prompt_token_ids": [5, 6, 7]},
    )
    chat, same, ids, again = load_prompts(file, TARGET, 4, 100)
    tokenizer = AutoTokenizer.from_pretrained(TARGET)
    shown = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Write a loop."}], tokenize=False, add_generation_prompt=True
    )
    assert tokenizer.decode(chat) == shown
    assert same == again == chat
    assert ids == [5, 6, 7]


def test_long_chats_are_left_out_and_long_ids_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = file_of(tmp_path, {"prompt": "word " * 200}, {"prompt_token_ids": list(range(50))})
    assert load_prompts(file, TARGET, 2, 20) == [list(range(30, 50))] * 2
    assert "1 of 2 prompts are left out: they have more than 20 tokens" in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"prompts\.jsonl: no prompts of at most 20 tokens"):
        load_prompts(file_of(tmp_path, {"prompt": "word " * 200}), TARGET, 2, 20)


def test_categories_are_asked_in_turn(tmp_path: Path) -> None:
    rows = [{"prompt_token_ids": [i], "category": "a" if i < 4 else "b"} for i in range(6)]
    assert load_prompts(file_of(tmp_path, *rows), TARGET, 4, 9) == [[0], [4], [2], [5]]


def test_a_row_without_a_prompt_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="prompt 2 has no prompt_token_ids, turns or prompt"):
        load_prompts(file_of(tmp_path, {"prompt": "a"}, {"text": "b"}), TARGET, 1, 99)


def test_the_zoos_own_prompts_stay_plain_text() -> None:
    (prompt,) = load_prompts(None, TARGET, 1, 99)
    text = str(specdec_zoo.prompts(limit=1)[0]["prompt"])
    assert prompt == AutoTokenizer.from_pretrained(TARGET)(text)["input_ids"][-99:]


def test_models_and_artefacts_that_are_not_there(tmp_path: Path) -> None:
    assert resolve_model("zoo") == TARGET
    assert zoo_artefact("draft", TARGET) == str(specdec_zoo.path("draft").resolve())
    with pytest.raises(
        SystemExit, match="--model no/such: give a folder, a GGUF file, or one of zoo, smollm2"
    ):
        resolve_model("no/such")
    with pytest.raises(SystemExit, match=r"no config\.json there"):
        resolve_model(str(tmp_path))
    with pytest.raises(SystemExit, match=r"'nothing'.*name a folder with --draft or --head"):
        zoo_artefact("nothing", TARGET)
