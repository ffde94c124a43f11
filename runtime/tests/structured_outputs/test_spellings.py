"""What the target chose where a grammar leaves few tokens is drafted when such a place comes back."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoTokenizer

import specdec_zoo
from specdec import LLM, SamplingParams
from specdec.structured_outputs import StructuredOutputsParams
from specdec_runtime.structured_outputs import spellings as module
from specdec_runtime.structured_outputs.compiler import LlguidanceGrammars
from specdec_runtime.structured_outputs.spellings import Spellings
from specdec_runtime.structured_outputs.state import MatcherState

pytestmark = pytest.mark.usefixtures("rows_that_cost_nothing")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "count": {"type": "integer"},
        "city": {"type": "string"},
        "is_member": {"type": "boolean"},
    },
    "required": ["name", "count", "city", "is_member"],
    "additionalProperties": False,
}
TEXT = '{"name": "Ada", "count": 12, "city": "Ulm", "is_member": true}'
QUOTE, BRACE = range(2)
PLACE = b'"'


def all_allowed(token_id: int) -> bool:
    return True


def test_the_most_frequent_token_is_expected_as_likely_as_it_was() -> None:
    made = Spellings()
    assert made.after(PLACE, all_allowed) is None
    for came in (QUOTE, BRACE, BRACE):
        made.learn(PLACE, came)
    assert made.after(PLACE, all_allowed) == (BRACE, pytest.approx(1.95 / (0.95**2 + 1.95 + 0.5)))
    assert made.after(PLACE, lambda token_id: token_id != BRACE) is None
    assert made.after((BRACE, 5), all_allowed) is None


def test_newer_choices_count_more() -> None:
    made = Spellings()
    for _ in range(200):
        made.learn(PLACE, QUOTE)
    found = made.after(PLACE, all_allowed)
    assert found is not None
    assert found[1] > 0.97
    for _ in range(20):
        made.learn(PLACE, BRACE)
    assert made.after(PLACE, all_allowed) == (BRACE, pytest.approx(0.63, abs=0.01))
    for _ in range(100):
        made.learn(PLACE, BRACE)
    assert made._counts[PLACE].keys() == {BRACE}


def test_old_places_make_room(monkeypatch) -> None:
    monkeypatch.setattr(module, "_MOST_CONTEXTS", 2)
    made = Spellings()
    for place in (b"1", b"2", b"1", b"3"):
        made.learn(place, QUOTE)
    assert list(made._counts) == [b"1", b"3"]


@pytest.fixture(scope="module")
def target() -> LLM:
    return LLM("zoo", dtype="float32")


def steps_of(state: MatcherState, text: list[int]) -> list[tuple[list[int], int]]:
    """Return the forced tokens of each step of a text, and how many of them come."""
    steps, place = [], 0
    while place < len(text):
        forced = state.forced(16)
        assert all(state.allowed_nodes(forced, None))
        pairs = enumerate(zip(forced, text[place:], strict=False))
        kept = next((n for n, (a, b) in pairs if a != b), len(forced))
        steps.append((forced, kept))
        state.advance(text[place : place + kept + 1])
        place += kept + 1
    return steps


def test_a_second_text_is_drafted_from_value_to_value(target: LLM) -> None:
    """As the target spelled it in the first, and with the punctuation around the names."""
    tokenizer = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
    params, info = StructuredOutputsParams(json=SCHEMA), target._input_processor._info

    letters = [
        token_id for letter in TEXT for token_id in tokenizer(letter, add_special_tokens=False)["input_ids"]
    ]
    for text in (tokenizer(TEXT, add_special_tokens=False)["input_ids"], letters):
        grammars = LlguidanceGrammars()
        first, second, careful = (grammars.compile(params, info, tokenizer) for _ in range(3))
        before, after = steps_of(first, text), steps_of(second, text)
        assert len(after) < min(len(before), 0.6 * len(text))
        drafted, accepted = sum(len(forced) for forced, _ in after), sum(kept for _, kept in after)
        assert accepted > 0.8 * drafted
        lengths = [len(careful.forced(16, chance)) for chance in (0.0, 0.3, 0.9, 1.0)]
        assert lengths[0] >= lengths[1] > lengths[2] >= lengths[3]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.sampled(1, slow=1)
def test_texts_stay_those_of_plain_decoding(target: LLM, temperature: float) -> None:
    params = [
        SamplingParams(
            temperature=temperature, seed=seed, max_tokens=120, structured_outputs={"json": SCHEMA}, speculative=is_drafted
        )
        for seed in range(3)
        for is_drafted in (None, False)
    ]  # fmt: skip
    for _ in range(3):
        outputs = target.generate(["import json\nmember = "] * len(params), params)
        texts = [output.outputs[0].token_ids for output in outputs]
        assert texts[0::2] == texts[1::2]
    assert sum(output.metrics.num_accepted_tokens for output in outputs) > 0
