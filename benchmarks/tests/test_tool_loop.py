"""Questions of the tool loop, and the check of calls."""

from __future__ import annotations

import pytest
from tool_loop import METHODS, VALUES, is_right, questions, tools


def test_twenty_tasks_differ_and_every_tool_has_a_bounded_schema() -> None:
    assert len(set(questions(20))) == 20
    assert [tool["function"]["name"] for tool in tools()] == list(VALUES)
    for tool in tools():
        schema = tool["function"]["parameters"]
        assert schema["required"] == list(schema["properties"])
        assert all(
            "enum" in value or value["type"] in ("integer", "boolean")
            for value in schema["properties"].values()
        )
    assert METHODS["none"] is None


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("add", '{"a": 1, "b": 2}', True),
        ("add", '{"a": 1, "b": true}', False),
        ("add", '{"a": 1}', False),
        ("add", '{"a": 1, "b": 2, "c": 3}', False),
        ("get_weather", '{"city": "Tokyo", "unit": "celsius"}', True),
        ("get_weather", '{"city": "Rome", "unit": "celsius"}', False),
        ("set_timer", '{"minutes": 5, "loud": false}', True),
        ("other", "{}", False),
        ("add", "{", False),
    ],
)
def test_calls_are_held_to_their_schema(name: str, arguments: str, expected: bool) -> None:
    assert is_right(name, arguments) is expected
