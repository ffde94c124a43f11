"""Every number about speed in a page comes from a committed result file, or says that it does not."""

import json
from pathlib import Path

import measured
import pytest
from packages import ROOT

SET = {
    "AGENTS.md": ("ten minutes of hostile",),
    "benchmarks/README.md": (
        "2 % of a core",
        "rounds for 95 %",
    ),
    "benchmarks/results/README.md": ("float32 at 0.8", "less than 95 %"),
    "docs/arena.md": ("up to 0.001 nats", "variation of 0.5"),
    "docs/audit.md": (
        *("four times the 90th", "0.001 and 0.5 nats", "fewer than ten times", "(0.001; in 10,000"),
        *("at 0.01 70", "probability 0.95"),
    ),
    "docs/benchmarking.md": ("bounds (95 %",),
    "docs/operations.md": (
        *("| 10 s | 400", "| 10 s, 60 s | 408", "| 30 s | a connection", "bodies of 32 times"),
        *("1 to 30 s if often", "have five seconds", "every ten seconds"),
    ),
    "docs/sampling.md": ("after 30 s",),
    "docs/write-a-proposer.md": ("four times the target's", "at least 50 ms", "once in a million"),
    "train/README.md": ("40 % of the time", "98 % of the answers'", "every two minutes"),
    "zoo/README.md": ("92 % of the tokens",),
}
"""Numbers that look like speeds and are settings, limits or shares: by page, with words beside them."""
PAGES = measured.pages()


def titled(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=titled)
def test_every_number_about_speed_leads_to_a_file(page: Path) -> None:
    told, known = measured.unlinked_claims(page.read_text(encoding="utf-8")), SET.get(titled(page), ())
    missing = [claim for claim in told if not any(words in claim for words in known)]
    assert missing == [], "link each to its result file (scripts/measured.py), or leave it out"
    assert [words for words in known if not any(words in claim for claim in told)] == []


def test_the_pages_that_strangers_read_first_are_among_them() -> None:
    pages = set(map(titled, PAGES))
    assert {"README.md", "kernels/README.md", "docs/results.md", "plugins/suffix/README.md"} <= pages
    assert set(SET) <= pages


def test_every_result_file_names_its_machine() -> None:
    results = ROOT / "benchmarks/results"
    numbers = [
        number for page in PAGES for number in measured.measured(page, page.read_text(encoding="utf-8"))
    ]
    assert numbers
    assert {number.file.resolve().parent for number in numbers} == {results}
    for file in results.glob("*.json"):
        content = json.loads(file.read_text(encoding="utf-8"))
        environment = content.get("environment") or content["provenance"]
        device = environment.get("device")
        assert environment.get("cpu") or (isinstance(device, dict) and device["name"]), file.name


@pytest.mark.parametrize(
    "claim",
    [
        "It runs at 197 tokens/s.",
        "**3.1 times the tokens per second** of plain decoding.",
        "It is three times faster than vLLM.",
        "Twice as fast as plain decoding.",
        "A step takes 6.7 ms, and four drafted tokens 0.3 ms more.",
        "A 2.4x speed-up.",
        "2.4\u00d7 on code",
        "On code `ngram` gains 1.28 [0.24, 1.60].",
        "Plain decoding: `recycling` 736 and 759 tokens/s, `ngram` 650 and 671.",
        "Throughput rises by 38 %, latency falls by 12 per cent.",
        "The first start takes half a minute.",
        "- Compiling takes 30 s the first time.",
        "| batch | tokens/s |\n|---|---|\n| 1 | 464 |\n",
        "| method | speed-up |\n|---|---|\n| ngram | 1.9 |\n",
        "Of 1.25 ms a plain step the kernels take 0.82.",
        "It copies at 4.8 TB/s.",
        "- one\n- two: 12 µs",
    ],
)
def test_a_claim_without_a_file_is_found(claim: str) -> None:
    assert measured.unlinked_claims(f"# A page\n\nIt has words.\n\n{claim}\n"), claim
    assert measured.unlinked_claims(f"Notes {measured.UNMEASURED}.\n\n{claim}\n") == []


@pytest.mark.parametrize(
    "harmless",
    [
        "Temperature 0.8 with `timeout=30 s`, as in vLLM 0.32: 8 requests at a time.",
        "It needs Python 3.11 or newer, and a second model.",
        "```console\n$ specdec bench  # 12 ms\n```\n",
        '[197](FILE.json "rows/0/tokens_per_s") tokens/s',
        "<!-- generated: results FILE.json -->\n| 197 tokens/s |\n<!-- end -->\n",
        f"It took 40 minutes ({measured.UNMEASURED}).",
    ],
)
def test_what_is_no_claim_is_left_alone(harmless: str) -> None:
    assert measured.unlinked_claims(f"# A page\n\nIt has words.\n\n{harmless}\n") == []


def test_numbers_are_written_from_their_files(tmp_path: Path) -> None:
    rows = {
        "columns": ["name", "speed", "low", "high"],
        "rows": [["a", 1.234, 1.1, 1.3], ["b", 1675.2, 1, 2]],
    }
    (tmp_path / "r.json").write_text(json.dumps({"steps": rows, "share": 0.4912, "nested": [{"x": [1, 2]}]}))
    page = tmp_path / "page.md"

    def written(shown: str, key: str) -> str:
        return (
            measured.rewritten(page, f'a [b](c.md) [{shown}](r.json "{key}") ms')
            .partition(" [b](c.md) [")[2]
            .split("](r")[0]
        )

    assert written("9.99 [0.00, 0.00]", "steps/name=a/speed,low,high") == "1.23 [1.10, 1.30]"
    assert written("0", "steps/name=b/speed") == "1,675"
    assert written("0 %", "share") == "49 %"
    assert written("0 and 0", "nested/0/x") == "1 and 2"
    for wrong in ("steps/name=c/speed", "steps/speed", "nothing"):
        with pytest.raises((KeyError, TypeError)):
            written("1", wrong)
    with pytest.raises(ValueError, match="1 numbers, 'steps/name=a/low,high' 2"):
        written("1", "steps/name=a/low,high")
