"""Regular expressions as xgrammar is given them, against Python's `re`: the same texts, or a refusal that says why."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speccheck.grammars import CHARACTERS, accepts, compiled, sampled

from specdec import ConfigError
from specdec.grammar.pattern import for_text
from specdec.grammar.regex import outside, parsed

PATTERNS = [
    r"^a\tb$", r'^"a"$', r"^C:\\[a-z]+\\x$", r"\d+", "a", "^a", "a$", r"^.$", r"^[^a]$", r"^\W$", r"^\S$", r"^\D$", "^$", "",
    r"^[^\s]+$", r"^[^\w]$", r"^[^\d]$", r"^(?P<n>a)b$", r"^(?:a|\t)$", "^[à-ü]$", "^😀$", r"^\u0041\x41?$", r"^a{2,}?b$",
    "^a|b$", r"^a\/b$", r"^[a\-z]$", "^a.b$", r"^[\t\n]$", r'^[\\"]$', "a$|^b", "(^a|^b)$", "(^a)", r"\Aa\Z", "^[\\^a]$",
    "^[\\^-z]$", "^[^^]$", r"^[\]\[]$", "^(a|)$", "^(|a|ab)b?$", "^((a|b)*c?)+$", "^a{0}$", "^(ab){1,2}$", r"^[\x00-\x1f]$",
    r"^[\b]$", r"^(\"|\\|/)$", r"^[+-]?\d+(\.\d+)?$", r"^a(\.\d+)?z$", "^[ -~]$", r"^\{\}$", r"^(a(b(c)?)?)?$", "^-$",
]  # fmt: skip
TEXTS = [
    *CHARACTERS[:-1], "", "A", "AA", "ab", "aab", "aaa", "abab", "xa", "ax", "a\tb", '"a"', "C:\\x", "C:\\ab\\x", "a b", "a/b",
    "a\nb", 'a"b', "a\\b", "ba", "^a", "{}", "[]", "a-z", "12", "1a", "12.5", "-3", "a.5z", "a5z", "az", "abc", "é日",
]  # fmt: skip
REFUSED = {
    "(?=a)a": "look-ahead", "(?!x)a": "look-ahead", "(?<=x)a": "look-behind", "(?<!x)a": "look-behind",
    r"(a)\1": "backreference", r"(?P<n>a)(?P=n)": "backreference", r"\k<n>": "backreference", r"\bab": "word boundary",
    r"\p{L}": r"\\p is not supported", "(?i)a": "flags", "(?i:a)": "flags", "(?>a)": "atomic", "a++": "repetition",
    "(?#x)a": "comment", "^[]$": "empty", "a^b": "anchor", "(^a)*": "anchor", "a{": "repetition", "(": "not closed",
    "a)": "closes no group", "[a": "not closed", "*a": "repeats nothing", r"\q": r"\\q", "a\\": "backslash",
    "[b-a]": "range", r"[\d-z]": "range", r"\ud83d": "not a character", "(?(1)a)": "condition",
    r"[^\s\S]": "without characters",
    "a{3,2}": "at least 3", "(" * 60 + ")" * 60: "nested", "a" * 10_001: "10001 characters",
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$": "look-ahead",  # what pydantic writes for Decimal
}  # fmt: skip


def taken(pattern: str, text: str, *, is_whole: bool) -> bool:
    found = re.fullmatch(pattern, text) if is_whole else re.search(pattern, text)
    return found is not None and not (
        pattern.endswith("$") and text.endswith("\n") and found.end() < len(text)
    )


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_same_texts(pattern: str) -> None:
    """Python's classes go beyond ASCII and ECMAScript's do not: what only one of them takes is refused."""
    inside = compiled({"json": {"type": "string", "pattern": pattern}})
    whole = compiled({"regex": pattern or "()"})
    for text in TEXTS:
        for grammar, is_whole, written in (
            (inside, False, json.dumps(text, ensure_ascii=False)),
            (whole, True, text),
        ):
            is_allowed = accepts(grammar, written) or (not is_whole and accepts(grammar, json.dumps(text)))
            expected = taken(pattern, text, is_whole=is_whole)
            is_ambiguous = not text.isascii() or text in "\x1c\x1d\x1e\x1f\r"
            assert is_allowed == expected or (is_ambiguous and expected), (text, is_whole)
    for text in TEXTS:
        if accepts(inside, f'"{text}"'):
            assert json.loads(f'"{text}"') is not None, "what is allowed is JSON"


@pytest.mark.parametrize("pattern", REFUSED, ids=[name[:20] for name in REFUSED])
def test_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match=f"structured_outputs 'json': 'pattern' at #.*{REFUSED[pattern]}"):
        compiled({"json": {"type": "string", "pattern": pattern}})
    with pytest.raises(
        ConfigError, match=f"structured_outputs 'regex' cannot be compiled: .*{REFUSED[pattern]}"
    ):
        compiled({"regex": pattern})
    tag = {"type": "structural_tag", "format": {"type": "regex", "pattern": pattern}}
    with pytest.raises(ConfigError, match=REFUSED[pattern]):
        compiled({"structural_tag": tag})


atoms = st.sampled_from(["a", "b", "c", ".", r"\d", "[ab]", "[^a]", r"\.", '"', r"\\", r"\t", "x", "[a-c1]"])
patterns = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=3).map("".join)
        | st.lists(inner, min_size=1, max_size=3).map(lambda some: f"({'|'.join(some)})")
        | st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,2}", "{2,}"])).map(
            lambda p: f"({p[0]}){p[1]}"
        )
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    pattern=patterns,
    around=st.sampled_from(["^%s$", "^%s", "%s$", "%s", "^(%s)$"]),
    texts=st.lists(st.text('abc.1"\\\txz', max_size=6), min_size=20, max_size=20),
    seed=st.integers(0, 2**32),
)
def test_any_pattern(pattern: str, around: str, texts: list[str], seed: int) -> None:
    search, inside = around % pattern, compiled({"json": {"type": "string", "pattern": around % pattern}})
    whole = compiled({"regex": pattern or "()"})
    for text in texts:
        assert accepts(inside, json.dumps(text)) == (re.search(search, text) is not None), text
        assert accepts(whole, text) == (re.fullmatch(pattern, text) is not None), text
    for text in sampled(inside, seed, 2):
        assert re.search(search, json.loads(text)), text
    for text in sampled(whole, seed, 2):
        assert re.fullmatch(pattern, text), text


def test_written_twice_is_written_once() -> None:
    for pattern in PATTERNS:
        assert for_text(for_text(pattern)) == for_text(pattern)


def test_sets_have_no_surrogates() -> None:
    assert outside(((0, 10),)) == ((11, 0xD7FF), (0xE000, 0x10FFFF))
    found: Any = parsed("[^\\x00-\\ud7ff]")
    assert found.ranges == ((0xE000, 0x10FFFF),)
