"""Regular expressions against Python's `re`: the same texts, or a refusal that says why."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speccheck.grammars import CHARACTERS, accepts, compiled, sampled

from specdec import ConfigError

PATTERNS = [
    r"^a\tb$", r'^"a"$', r"^C:\\[a-z]+\\x$", r"\d+", "a", "^a", "a$", r"^.$", r"^[^a]$", r"^\W$", r"^\S$", r"^\D$", "^$", "",
    r"^[^\s]+$", r"^[^\w]$", r"^[^\d]$", r"^(?P<n>a)b$", r"^(?:a|\t)$", "^[à-ü]$", "^😀$", r"^\u0041\x41?$", r"^a{2,}?b$",
    "^a|b$", r"^a\/b$", r"^[a\-z]$", "^a.b$", r"^[\t\n]$", r'^[\\"]$', "a$|^b", "(^a|^b)$", "(^a)", "^[\\^a]$",
    "^[\\^-z]$", "^[^^]$", r"^[\]\[]$", "^(a|)$", "^(|a|ab)b?$", "^((a|b)*c?)+$", "^a{0}$", "^(ab){1,2}$", r"^[\x01-\x1f]$",
    r"^(\"|\\|/)$", r"^[+-]?\d+(\.\d+)?$", r"^a(\.\d+)?z$", "^[ -~]$", r"^\{\}$", r"^(a(b(c)?)?)?$", "^-$",
]  # fmt: skip
TEXTS = [
    *CHARACTERS[:-1], "", "A", "AA", "ab", "aab", "aaa", "abab", "xa", "ax", "a\tb", '"a"', "C:\\x", "C:\\ab\\x", "a b", "a/b",
    "a\nb", 'a"b', "a\\b", "ba", "^a", "{}", "[]", "a-z", "12", "1a", "12.5", "-3", "a.5z", "a5z", "az", "abc", "é日",
]  # fmt: skip
LEFT_OUT = {chr(code) for code in (*range(32), 0x7F)} - set("\b\t\n\f\r")
"""Control characters that are written as `\\u` only, which no string does."""
REFUSED = {
    "(?=a)a": "look-ahead", "(?!x)a": "look-ahead", "(?<=x)a": "look-behind", "(?<!x)a": "look-behind",
    r"(a)\1": "backreferences", r"(?P<n>a)(?P=n)": "unrecognized flag", r"\bab": "lookarounds", "(?>a)": "unrecognized flag",
    "^[]$": "unclosed", "a^b": "lookarounds", "(^a)*": "lookarounds", "a{": "unclosed", "(": "unclosed", "a)": "unopened",
    "[a": "unclosed", "*a": "missing expression", r"\q": "unrecognized escape", "[b-a]": "range",
    r"\ud83d": "not a Unicode scalar value", "(?(1)a)": "unrecognized flag", "a{3,2}": "range", r"\Aa\Z": "unrecognized escape",
    "(" * 1000 + ")" * 1000: "nest",
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$": "look-ahead",  # what pydantic writes for Decimal
}  # fmt: skip


def taken(pattern: str, text: str, *, is_whole: bool) -> bool:
    found = re.fullmatch(pattern, text) if is_whole else re.search(pattern, text)
    return found is not None and not (
        pattern.endswith("$") and text.endswith("\n") and found.end() < len(text)
    )


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.sampled(12, slow=16)
def test_the_same_texts(pattern: str) -> None:
    """In a schema classes are ASCII, as in ECMAScript; in `regex` they are Unicode's, as in Python."""
    inside = compiled({"json": {"type": "string", "pattern": pattern}})
    whole = compiled({"regex": pattern or "()"})
    for text in TEXTS:
        for grammar, is_whole, written in (
            (inside, False, json.dumps(text, ensure_ascii=False)),
            (whole, True, text),
        ):
            is_allowed = accepts(grammar, written) or (not is_whole and accepts(grammar, json.dumps(text)))
            is_expected = taken(pattern, text, is_whole=is_whole)
            is_ambiguous = not text.isascii() or text in "\x1c\x1d\x1e\x1f\r\0"
            is_unwritten = not is_whole and text in LEFT_OUT
            assert is_allowed == is_expected or is_ambiguous or (is_unwritten and not is_allowed), (
                text,
                is_whole,
            )
    for text in TEXTS:
        if accepts(inside, f'"{text}"'):
            assert json.loads(f'"{text}"') is not None, "what is allowed is JSON"


@pytest.mark.parametrize("pattern", REFUSED, ids=[name[:20] for name in REFUSED])
@pytest.mark.sampled(8, slow=8)
def test_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s)structured_outputs 'json' cannot be .*{REFUSED[pattern]}"):
        compiled({"json": {"type": "string", "pattern": pattern}})
    with pytest.raises(ConfigError, match=f"(?s)structured_outputs 'regex' cannot be .*{REFUSED[pattern]}"):
        compiled({"regex": pattern})
    tag = {"type": "structural_tag", "format": {"type": "regex", "pattern": pattern}}
    with pytest.raises(ConfigError, match=f"(?s){REFUSED[pattern]}"):
        compiled({"structural_tag": tag})


SETS = [
    '^[^"]*$',
    r"^[^\\]+$",
    r'^[^"\\]*$',
    r'^a[^"\\\n]$',
    r'^[^"]{2}$',
    r"^[\s\S]$",
    r'^[^\S"]$',
    "^[^[]$",
    "^[[a]b]$",
    "^[a&&b]$",
]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # Python's, of sets within sets
@pytest.mark.parametrize("pattern", SETS)
def test_sets_do_not_grow_by_what_json_escapes(pattern: str) -> None:
    inside = compiled({"json": {"type": "string", "pattern": pattern}})
    for text in (
        '"',
        "\\",
        "\n",
        "\t",
        "a",
        'a"',
        "a\\",
        "ab",
        "a\n",
        '[^"]',
        "[^]",
        "[",
        "é",
        "",
        "ab]",
        "[b]",
        "&",
    ):
        is_allowed = any(accepts(inside, json.dumps(text, ensure_ascii=flag)) for flag in (True, False))
        assert is_allowed == taken(pattern, text, is_whole=False), text


@pytest.mark.parametrize("pattern", [r"^[\x00-\x1f]$", r"^[\u0000-!]$", r"\0", "^[\0-\x1f]$"])
def test_patterns_with_nul_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"U\+0000: begin with U\+0001"):
        compiled({"json": {"type": "string", "pattern": pattern}})
    compiled({"json": {"type": "string", "pattern": r"^\\x00$"}})


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


@settings(max_examples=60, deadline=None)
@given(
    pattern=patterns,
    around=st.sampled_from(["^%s$", "^%s", "%s$", "%s", "^(%s)$"]),
    texts=st.lists(st.text('abc.1"\\\txz', max_size=6), min_size=20, max_size=20),
    seed=st.integers(0, 2**32),
)
@pytest.mark.slow
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
