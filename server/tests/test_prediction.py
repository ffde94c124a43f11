"""OpenAI's `prediction`: fewer steps, the same text, and counts in `usage`."""

from __future__ import annotations

import pytest
from openai import BadRequestError, OpenAI

ASKED = {
    "model": "zoo",
    "messages": [{"role": "user", "content": "def main("}],
    "temperature": 0,
    "max_tokens": 40,
}


def test_a_predicted_answer_is_the_same_and_counted(client: OpenAI) -> None:
    plain = client.chat.completions.create(**ASKED)
    text = plain.choices[0].message.content
    assert text
    parts = [{"type": "text", "text": text[:20]}, {"type": "text", "text": text[20:]}]
    for content in (text, parts):
        got = client.chat.completions.create(**ASKED, prediction={"type": "content", "content": content})
        assert got.choices[0].message.content == text
        details = got.usage.completion_tokens_details
        assert details.accepted_prediction_tokens >= 20
        assert details.rejected_prediction_tokens <= 16
    details = plain.usage.completion_tokens_details
    assert details.accepted_prediction_tokens == details.rejected_prediction_tokens == 0


def test_a_wrong_prediction_changes_nothing(client: OpenAI) -> None:
    plain = client.chat.completions.create(**ASKED)
    got = client.chat.completions.create(**ASKED, prediction={"type": "content", "content": "zebra " * 50})
    assert got.choices[0].message.content == plain.choices[0].message.content
    assert got.usage.completion_tokens_details.rejected_prediction_tokens <= 60


@pytest.mark.parametrize(
    ("prediction", "named"),
    [
        ({"type": "text", "content": "a"}, "content"),
        ({"type": "content"}, "prediction"),
        ({"type": "content", "content": [{"type": "image_url", "text": ""}]}, "prediction"),
        ("words", "prediction"),
    ],
)
def test_other_shapes_are_refused(client: OpenAI, prediction: object, named: str) -> None:
    with pytest.raises(BadRequestError, match=named):
        client.chat.completions.create(**ASKED, prediction=prediction)
