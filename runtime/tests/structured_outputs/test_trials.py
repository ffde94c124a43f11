"""Grammars are tried in processes of their own: what takes too much, is too deep or allows no text is refused, in time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from speccheck.grammars import accepts, compiled

from specdec import ConfigError
from specdec_runtime.structured_outputs import trial

INTEGER: dict[str, Any] = {"type": "integer"}
SLOW = {"json": {"type": "string", "allOf": [{"pattern": f"[ab]*a[ab]{{{k}}}$"} for k in range(5, 30)]}}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    trial._tried.cache_clear()
    yield
    trial._tried.cache_clear()


def chain(length: int) -> dict[str, Any]:
    names: dict[str, Any] = {
        str(i): {"type": "array", "items": {"$ref": f"#/$defs/{i + 1}"}} for i in range(length)
    }
    return {"$ref": "#/$defs/0", "$defs": names | {str(length): INTEGER}}


def nested(depth: int) -> dict[str, Any]:
    schema = INTEGER
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def test_what_takes_too_long_is_ended_for_its_own_caller_alone() -> None:
    found: list[str] = []

    def attempt() -> None:
        trial.deadline.set(monotonic() + 3)
        with pytest.raises(ConfigError) as told:
            compiled(SLOW)
        found.append(str(told.value))

    threads = [threading.Thread(target=attempt) for _ in range(2)]
    before = monotonic()
    for thread in threads:
        thread.start()
    assert accepts(compiled({"regex": "[a-z]{3}"}), "abc")
    for thread in threads:
        thread.join()
    assert monotonic() - before < 30
    assert (
        found
        == ["SamplingParams: structured_outputs 'json' takes more than 1.5 s to compile: make it simpler"] * 2
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"json": chain(20_000)},
        {"grammar": "start: a0\n" + "".join(f'a{i}: a{i + 1} "a"\n' for i in range(20_000)) + 'a20000: "b"'},
        {"grammar": "start: A0\n" + "".join(f'A{i}: A{i + 1} "a"\n' for i in range(20_000)) + 'A20000: "b"'},
        {"json": {"enum": [f"{i}" * 30 for i in range(60_000)]}},
        {"regex": "(" * 100_000 + ")" * 100_000},
        {"grammar": "root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000},
        {"grammar": "start: " + "(" * 100_000 + '"a"' + ")" * 100_000},
        {"json": json.dumps(nested(200))},
        {"json": '{"items": ' * 100_000 + "{}" + "}" * 100_000},
        {"structural_tag": '{"format": ' * 100_000 + "{}" + "}" * 100_000},
    ],
    ids=lambda keys: f"{next(iter(keys))} {str(keys)[:40]}",
)
@pytest.mark.sampled(4, slow=6)
def test_what_is_too_deep_or_large_is_refused(keys: dict[str, Any]) -> None:
    before = monotonic()
    with pytest.raises(ConfigError, match="structured_outputs"):
        compiled(keys)
    assert monotonic() - before < 30


@pytest.mark.parametrize(
    ("regex", "text"),
    [("(a{1,1000}){1,1000}", "aaa"), ("(.*a){50}", "a" * 50), ("(a?){1,5000}a{50}", "a" * 500), ("(x+x+)+y", "xxy")],
)  # fmt: skip
def test_large_repetitions_are_no_matter(regex: str, text: str) -> None:
    assert accepts(compiled({"regex": regex}), text)
    assert not accepts(compiled({"regex": regex}), "b")


def test_deep_schemas_within_bounds() -> None:
    assert accepts(compiled({"json": nested(30)}), "[" * 30 + "1" + "]" * 30)
    assert accepts(compiled({"json": chain(100)}), "[" * 100 + "1" + "]" * 100)
    tree = {"type": "object", "properties": {"left": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}
    assert accepts(compiled({"json": tree}), '{"left": {"left": null}}')


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {"json": {"type": "integer", "multipleOf": 1_000_003}}
    monkeypatch.setattr(trial, "MEMORY_BYTES", 64 * 2**20)
    with pytest.raises(ConfigError, match="'json' is nested too deeply, or takes more than 64 MiB"):
        compiled(wide)


def test_the_same_grammar_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled({"regex": "abc"})
    with pytest.raises(ConfigError, match="look-ahead"):
        compiled({"regex": "(?=a)"})
    monkeypatch.setattr(trial.subprocess, "run", None)
    compiled({"regex": "abc"})
    with pytest.raises(ConfigError, match="look-ahead"):
        compiled({"regex": "(?=a)"})


@pytest.mark.parametrize(
    "keys",
    [
        {"grammar": "root ::= root"}, {"grammar": 'root ::= one{2,3} "x"\none ::= one'}, {"json": {"$ref": "#"}},
        {"json": "false"}, {"json": {"enum": []}}, {"regex": r"[^\s\S]"}, {"json": {"allOf": [INTEGER, {"type": "null"}]}},
    ],
)  # fmt: skip
def test_what_allows_no_text_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"allows no text|[Uu]nsatisfiable|empty"):
        compiled(keys)
