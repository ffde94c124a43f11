"""The OpenAPI document: every operation is in a group, has a sentence, and an example that this server answers as shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from servercheck.served import Served

from specdec_server.openapi.document import GROUPS

JSON = "application/json"
SOMETIMES = {".incomplete_details.reason", ".completed_at", ".token_strs"}
"""Fields of answers to some requests only."""


@pytest.fixture(scope="module")
def document(served: Served) -> dict[str, Any]:
    status, found = served.ask("/openapi.json")
    assert status == 200
    return dict(found)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, found in document["paths"].items():
        for method, operation in found.items():
            yield method, path, operation


def test_every_operation_has_a_group_a_sentence_and_an_example(document: dict[str, Any]) -> None:
    assert document["tags"] == GROUPS
    used = set()
    for method, path, operation in operations(document):
        (group,) = operation["tags"]
        used.add(group)
        assert operation["summary"].endswith("."), (method, path)
        assert len(operation["summary"].split()) >= 3, (method, path)
        if method == "post" and path != "/reset_prefix_cache":
            assert operation["requestBody"]["content"][JSON]["examples"], path
        content = operation["responses"]["200"].get("content")
        assert path == "/health" or all(kind["example"] for kind in content.values()), path
    assert [tag["name"] for tag in document["tags"] if tag["name"] in used] == [tag["name"] for tag in GROUPS]


def test_examples_of_requests_are_answered_as_shown(served: Served, document: dict[str, Any]) -> None:
    num_asked = 0
    for _, path, operation in (found for found in operations(document) if found[0] == "post"):
        shown = operation["responses"]["200"]["content"][JSON]["example"]
        if "requestBody" not in operation:
            assert fields(served.ask(path, b"")[1]) == fields(shown)
            continue
        for name, example in operation["requestBody"]["content"][JSON]["examples"].items():
            status, answer = served.ask(path, example["value"])
            assert status == 200, (path, name, answer)
            num_asked += 1
            if not example["value"].get("stream"):
                assert fields(answer) ^ fields(shown) <= SOMETIMES, (path, name)
            else:
                assert answer.endswith("data: [DONE]\n\n")
    assert num_asked > 10


def test_examples_of_answers_have_the_fields_of_answers(served: Served, document: dict[str, Any]) -> None:
    stored = served.ask("/v1/responses", {"input": "a", "max_output_tokens": 4, "temperature": 1.0})[1]["id"]
    for method, path, operation in operations(document):
        if method == "post" or path in ("/health", "/metrics") or method == "delete":
            continue
        place = path.replace("{response_id}", stored).replace("{name}", "zoo")
        status, answer = served.ask(place)
        assert status == 200, place
        shown = operation["responses"]["200"]["content"][JSON]["example"]
        assert fields(answer) ^ fields(shown) <= SOMETIMES, path
    example = document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]["text/plain"]["example"]
    told = served.ask("/metrics")[1]
    for line in example.splitlines():
        assert line.removesuffix(" 51.0").replace("smollm2", "zoo") in told


def fields(value: Any, name: str = "") -> set[str]:
    """Return the names of all fields inside a value that are not null, of lists those of the first item."""
    if isinstance(value, dict):
        return set().union(*(fields(inner, f"{name}.{key}") for key, inner in value.items()))
    if isinstance(value, list) and value:
        return fields(value[0], name)
    return set() if value is None else {name}
