"""`specdec check-head` tells how an assistant was trained to be asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from mtp_check.assistants import VOCAB_SIZE, Pair, PlainAssistant, make_pair
from mtp_check.cycles import circle, make_circle, read_rows, read_states
from transformers import AutoModelForCausalLM

from specdec_runtime.drafting.checking.check import check_head


def checked(pair: Pair, tokens: list[int], folder: Path) -> dict[str, Any]:
    file = folder / "text.jsonl"
    file.write_text(json.dumps({"token_ids": tokens}))
    model = AutoModelForCausalLM.from_pretrained(pair.target, dtype=torch.float32)
    return check_head(str(pair.assistant), model, file)


@pytest.mark.parametrize(("kind", "is_ordered"), [("shared", False), ("dense", True)])
def test_likelihoods_are_those_of_transformers(tmp_path, kind, is_ordered) -> None:
    pair = make_pair(kind, tmp_path, is_ordered=is_ordered)
    tokens = torch.randint(VOCAB_SIZE, (26,), generator=torch.Generator().manual_seed(1)).tolist()
    found, plain = checked(pair, tokens, tmp_path), PlainAssistant(pair)
    assert (found["method"], found["dialect"], found["num_logits"]) == ("mtp", "gemma4_assistant", VOCAB_SIZE)

    def mean(path_length: int) -> float:
        logs = []
        for end in range(2 + path_length, len(tokens)):
            text, path = tokens[: end - path_length], tokens[end - path_length : end + 1]
            logs.append(float(plain.drafted_logits(text, path)[path_length].log_softmax(-1)[tokens[end]]))
        return sum(logs) / len(logs)

    assert found["readings"][0]["first"] == pytest.approx(mean(0), abs=1e-5)
    assert found["readings"][0]["second"] == pytest.approx(mean(1), abs=1e-5)


def test_an_assistant_that_is_read_right(tmp_path) -> None:
    found = checked(read_states(make_circle(tmp_path)), circle(3, 120), tmp_path)
    assert (found["best"], found["remedies"]) == ("", [])
    assert found["readings"][0]["first"] > found["unigram"] + 1
    assert {row["reading"] for row in found["readings"]} == {
        "as published", "queries at the position of the state", "states before the target's norm",
        "state first in the joined vector",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["sliding_attention", "full_attention"])
@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"shift": 1}, "queries at the position of the state"),
        ({"is_state_first": True}, "state first in the joined vector"),
    ],
)
def test_another_position_or_order(tmp_path, kind, keys, name) -> None:
    found = checked(read_rows(make_circle(tmp_path), kind, **keys), circle(3, 200), tmp_path)
    assert found["best"] == name
    assert len(found["remedies"]) == 1
