"""`python scripts/measured.py`: list every number about speed in the pages, with its file and key.

In prose a number is a link to its result file, whose title is its place there: `[1.83](FILE.json "rows/name=self/speedup")`.
`make docs` writes the number. Parts are names, places in a list, or conditions (`a=1;b=2`) that one row fulfils; the last may
be several names, separated by commas. Other numbers about speed are refused, unless their sentence or their page's first
paragraph says `UNMEASURED`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packages import ROOT
from readme_table import results_in

UNMEASURED = "without a result file"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
LINK = re.compile(r'\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+\.json) "([^"]+)"\)')
GENERATED = re.compile(r"<!-- generated: ([^\n]*) -->.*?<!-- end -->", re.S)
_NO_PROSE = re.compile(
    r"```.*?```|<!--.*?-->|^ {4,}[^\n]*|https?://\S+|`[^`\n]*`|\]\([^)]*\)|arXiv \d+\.\d+|\b[A-Z]\w+\d[\w.-]*",
    re.S | re.M,
)
_TIME = (
    r"milli\w+|micro\w+|sec(?:ond)?s?|min(?:ute)?s?|hours?|times|tokens? (?:per|a|each) second|fold|per ?cent"
)
_UNIT = rf"(?:{_TIME}|tokens?/s|[mµun]?s|x|\u00d7|%|[KMGT]i?B/s|[TG]?FLOP\S*|requests/s)(?![\w/])"
_WORD = r"(?i:half an?|an?|one|two|three|four|five|six|seven|eight|nine|ten|twenty|thirty)"
_LISTED = r"\s*(?:,|/|to|and|or|-|\u2013)\s*"
_WITH_UNIT = re.compile(
    rf"(?<![\w.])(?:\d[\d,.]*(?:{_LISTED}\d[\d,.]*)*[\s-]*\**{_UNIT}"
    rf"|{_WORD}(?: (?:to|or|and) {_WORD})?[ -](?:{_TIME})\b(?! (?:more|model|form|time\b)))"
)
_WITH_BOUNDS = re.compile(r"\d[\d.,]*x?\s\[\d[\d.]*, \d[\d.]*\]")
_IN_WORDS = re.compile(
    r"(?i)\b(?:twice|thrice|half|double|triple|quadruple)\b[^.;|]{0,12}\b(?:fast|slow|speed|throughput)\w*"
)
_SPEED = re.compile(
    r"(?i)tokens?/s|tokens (?:per|a) second|\b[mµ]s\b|plain decoding|speed-?ups?\b|throughput|latency|as fast|faster|slower"
    r"|times\b"
)
_UNITS = re.compile(r"(?i)tokens?/s|tokens (?:per|a) second|\b[mµ]s\b")
_INTEGER = re.compile(
    r"(?<![\w.=/])\d[\d,]*\d(?![\w./%])(?! (?:tokens|requests|questions|prompts|rows|threads|rounds|bytes|bits)\b)"
)
_DECIMAL = re.compile(r"(?<![\w.=/])\d+\.\d+(?![\w./])")
_SETTING = re.compile(
    r"(?i)(?:temperatures?|torch|triton|python|vllm|transformers|version|margin|capability|p =)\s(?:[<>]=?\s)?$"
)


@dataclass(frozen=True)
class Measured:
    """A number in a page, and where it comes from."""

    text: str
    file: Path
    key: str

    def values(self) -> list[float]:
        """Return the numbers at the key.

        Raises:
            KeyError: if there is nothing, or more than one row, at a part of it.
        """
        found: Any = results_in(self.file)
        *path, last = self.key.split("/")
        for part in path:
            if "=" not in part:
                found = found[int(part) if part.isdigit() else part]
                continue
            wanted = dict(condition.split("=", 1) for condition in part.split(";"))
            rows = [row for row in found if all(str(row[name]) == value for name, value in wanted.items())]
            if len(rows) != 1:
                raise KeyError(f"{self.file.name}: {len(rows)} rows are {part!r} in {self.key!r}")
            found = rows[0]
        values = [value for name in last.split(",") for value in _listed(found[name])]
        return [value * 100 if "%" in self.text else value for value in values]

    def written(self) -> str:
        """Return the text with the file's numbers, each with the decimals that it has."""
        values, shown = self.values(), NUMBER.findall(self.text)
        if len(values) != len(shown):
            raise ValueError(f"{self.text!r} has {len(shown)} numbers, {self.key!r} {len(values)}")
        rest = iter(values)
        return NUMBER.sub(lambda match: f"{next(rest):,.{len(match[0].partition('.')[2])}f}", self.text)


def _listed(found: Any) -> list[float]:
    return found if isinstance(found, list) else [found]


def measured(page: Path, text: str) -> list[Measured]:
    """Return the numbers of a page that are links to files."""
    return [Measured(shown, page.parent / file, key) for shown, file, key in LINK.findall(text)]


def rewritten(page: Path, text: str) -> str:
    """Return a page with the numbers as they are in the files."""

    def link(match: re.Match[str]) -> str:
        shown, file, key = match.groups()
        return f'[{Measured(shown, page.parent / file, key).written()}]({file} "{key}")'

    return LINK.sub(link, text)


def unlinked_claims(text: str) -> list[str]:
    """Return the numbers about speed in a page that lead to no file, each with what is beside it."""
    text = LINK.sub("", GENERATED.sub("", text))
    # Code, addresses and names are no claims; what is taken out leaves a letter, so that its neighbours stay apart.
    text = _NO_PROSE.sub(lambda match: "\n" * match[0].count("\n") or "c", text)
    paragraphs = [part for part in re.split(r"\n\s*\n|\n(?=- )", text) if not part.startswith("#")]
    if any(UNMEASURED in paragraph for paragraph in paragraphs[:1]):
        return []
    return [found for paragraph in paragraphs for found in _claims(paragraph)]


def _claims(paragraph: str) -> Iterator[str]:
    is_about_speed = _SPEED.search(paragraph) is not None
    for sentence in re.split(r"(?<=[.:;])\s+(?=[A-Z`*(c])", paragraph):
        if UNMEASURED in sentence:
            continue
        ends = 0
        found = [
            match for pattern in (_WITH_UNIT, _WITH_BOUNDS, _IN_WORDS) for match in pattern.finditer(sentence)
        ]
        if is_about_speed:
            found += [m for m in _DECIMAL.finditer(sentence) if not _SETTING.search(sentence[: m.start()])]
        found += _INTEGER.finditer(sentence) if _UNITS.search(sentence) else ()
        for match in sorted(found, key=lambda match: match.start()):
            if match.start() >= ends:
                ends = match.end()
                yield " ".join(sentence[max(0, match.start() - 30) : match.end() + 30].split())


def pages() -> list[Path]:
    """Return the pages that may tell numbers: README files, documents and the change log, wherever they are."""
    hidden = {".venv", "build", "dist", "node_modules", ".peers", ".git"}
    return sorted(page for page in ROOT.rglob("*.md") if not hidden & set(page.relative_to(ROOT).parts))


def main() -> None:
    """Print a line for every number and every generated part: page, number, file, key, and the sentence."""
    for page in pages():
        text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT)
        for part in GENERATED.findall(text):
            if ".json" in part:
                print(f"{name} | (table) | {part}")
        for match, number in zip(LINK.finditer(text), measured(page, text), strict=True):
            line = text[text.rfind("\n", 0, match.start()) + 1 : text.find("\n", match.end())]
            said = LINK.sub(lambda link: link[1], line)
            place = number.file.resolve().relative_to(ROOT)
            print(f"{name} | {number.text} | {place} | {number.key} | {said}")


if __name__ == "__main__":
    main()
