"""The page: whole, well formed, self-contained, and with the values of the rows."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from specdec_cli.bench.page import render
from specdec_cli.bench.page.figure import LONGEST_NAME, clipped

VOID = {"meta", "link", "br", "hr", "img", "input"}
ENVIRONMENT: dict[str, Any] = {
    "time": "2026-01-02T03:04:05+00:00",
    "command": ["specdec", "bench", "--model", "a model"],
    "versions": {"torch": "9.9"},
    "model": "<models>/tiny",
    "dtype": "float32",
    "device": "cpu",
    "max_tokens": 64,
    "temperature": 0.0,
    "deterministic": False,
    "prefix_caching": True,
    "rounds": 1,
    "cpu": None,
}
SUITE = {
    "name": "spec_bench",
    "file": "q.jsonl",
    "num_questions": 3,
    "num_left_out": 2,
    "is_chat": False,
    "tasks": {"writing": "chat", "math": "chat", "qa": "answers"},
    "bounds": "questions",
}


def row(name: str, category: str | None = None, **values: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": name,
        "method": None if name == "baseline" else "mine",
        "config": None if name == "baseline" else {"method": "mine", "note": "<b>"},
        "num_prompts": 3,
        "batch_size": 1,
        "tokens_per_s": 120.0,
        "speedup": 1.0,
        "speedup_low": 1.0,
        "speedup_high": 1.0,
        "mean_acceptance_length": 1.0,
        "acceptance_rate": 0.0,
        "acceptance_per_position": [],
        "propose_ms": 0.0,
        "score_ms": 6.0,
        "verify_ms": 0.1,
        "other_ms": 0.2,
        "forward_ms": 5.5,
        "ttft_ms": 20.0,
        "peak_memory_mb": 400.0,
        "identical_to_baseline": True,
        "distinct_4gram_ratio": 0.9,
        "eta": 1.0,
        "drafted_share": 0.0,
        "tokens_per_step": 1.0,
        **values,
    }
    return made if category is None else made | {"category": category}


def drafting(category: str | None = None, **values: Any) -> dict[str, Any]:
    measured = {
        "speedup": 1.77,
        "speedup_low": 1.61,
        "speedup_high": 1.93,
        "mean_acceptance_length": 2.5,
        "acceptance_per_position": [0.8, 0.5, 0.2],
        "propose_ms": 0.7,
        "drafted_share": 0.45,
        "eta": 0.708,
    }
    return row("mine <k>", category, **measured | values)


class Outline(HTMLParser):
    """Checks that elements close in order, and keeps what they are."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title"):
            self.text += data + " "

    def count(self, tag: str) -> int:
        return sum(seen == tag for seen, _ in self.seen)


def outline(page: str) -> Outline:
    parsed = Outline()
    parsed.feed(page)
    assert parsed.open == []
    return parsed


@pytest.fixture
def page() -> str:
    rows = [r for task in ("overall", "chat", "answers") for r in (row("baseline", task), drafting(task))]
    raw = [r for name in ("writing", "math", "qa") for r in (row("baseline", name), drafting(name))]
    return render(rows, raw, ENVIRONMENT | {"suite": SUITE})


def test_the_page_needs_nothing_from_elsewhere(page: str) -> None:
    parsed = outline(page)
    assert not any(
        attribute in attributes for _, attributes in parsed.seen for attribute in ("src", "href", "srcset")
    )
    assert "url(" not in page
    assert "@import" not in page
    assert parsed.count("script") == 0


def test_charts_have_titles_and_tables_behind_them(page: str) -> None:
    parsed = outline(page)
    charts = [attributes for tag, attributes in parsed.seen if tag == "svg"]
    assert [chart["role"] for chart in charts] == ["img"] * 3
    ids = {attributes.get("id") for tag, attributes in parsed.seen if tag == "title"}
    assert {chart["aria-labelledby"] for chart in charts} <= ids
    assert parsed.count("details") == 4
    assert parsed.count("caption") == 4
    assert all("scope" in attributes for tag, attributes in parsed.seen if tag == "th")
    assert dict(parsed.seen)["html"] == {"lang": "en"}


def test_both_colour_schemes_define_the_same_colours(page: str) -> None:
    light, dark = re.findall(r":root \{(.*?)\}", page, re.S)
    names = re.compile(r"(--[\w-]+):")
    assert names.findall(light) == names.findall(dark)
    used = set(re.findall(r"var\((--[\w-]+)\)", page))
    assert used <= set(names.findall(light))
    assert {"--ink", "--faint", "--rule", "--c1", "--propose"} <= used
    assert "#0001" not in page


def test_values_are_shown_and_text_is_escaped(page: str) -> None:
    text = outline(page).text
    for value in ("1.77", "1.61", "1.93", "45 %", "0.71", "0.80", "5.500", "6.3 ms", "7 ms"):
        assert value in text
    assert "<k>" not in page
    assert "<models>" not in page
    assert "mine &lt;k&gt;" in page
    assert "specdec bench --model 'a model'" in text
    assert "writing, math" in text
    assert "2 more questions are too long for the model" in text
    assert "The model has no chat template" in text
    assert "by resampling the questions" in text


def test_bounds_that_are_none_are_a_dash() -> None:
    single = drafting("poems", speedup_low=1.77, speedup_high=1.77)
    rows = [row("baseline", "overall"), drafting("overall"), row("baseline", "poems"), single]
    text = outline(render(rows, [], ENVIRONMENT | {"suite": SUITE})).text
    assert text.count("1.61 to 1.93") == 2
    assert "1.77 to" not in text
    assert "1.00 to" not in text


def test_a_run_on_prompts_has_no_categories() -> None:
    page = render([row("baseline"), drafting()], [], ENVIRONMENT | {"interrupted": "1 of 6 rounds"})
    parsed = outline(page)
    assert parsed.count("svg") == 3
    assert "category" not in parsed.text
    assert "The run was interrupted" in parsed.text
    assert "(1 of 6 rounds)" in parsed.text
    assert "fewer than six cannot give 95 %" in parsed.text


def test_plain_decoding_alone_has_no_speedup_and_no_acceptance() -> None:
    parsed = outline(render([row("baseline", forward_ms=None)], [], ENVIRONMENT))
    assert parsed.count("svg") == 1
    assert "Acceptance by position" not in parsed.text


def test_long_names_are_cut_in_pictures() -> None:
    assert clipped("short") == "short"
    assert len(clipped("x" * 90)) == LONGEST_NAME


def test_a_speedup_that_may_be_chance_is_not_told() -> None:
    noisy = drafting(tokens_per_s=81.0, speedup_low=0.5, speedup_high=1.93)
    text = outline(render([row("baseline"), noisy], [], ENVIRONMENT)).text
    assert "1.77" not in text
    assert "81" not in text
    assert "60 to 232 none shown 0.50 to 1.93" in " ".join(text.split())
