"""Streamed text on a terminal is broken between words."""

from __future__ import annotations

import random

import pytest

from specdec_cli.text.word_wrap import WordWrap


def wrapped(text: str, width: int, sizes: random.Random) -> str:
    wrap, shown, at = WordWrap(width), list[tuple[str, bool]](), 0
    while at < len(text):
        size = sizes.randint(1, 5)
        shown += wrap.add(text[at : at + size], at % 2 == 0)
        at += size
    return "".join(part for part, _ in shown + wrap.flush())


@pytest.mark.parametrize("seed", range(20))
def test_no_line_is_longer_than_the_terminal_and_no_word_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    words = ["".join(chance.choices("abcde", k=chance.randint(1, 9))) for _ in range(60)]
    text = "".join(word + chance.choice([" ", " ", " ", "\n", "  "]) for word in words)
    shown = wrapped(text, 20, chance)
    assert all(len(line.rstrip()) <= 20 for line in shown.split("\n"))
    assert shown.split() == text.split()
    assert shown.replace("\n", "") == text.replace("\n", "")
    assert wrapped(text, 10_000, chance) == text


def test_a_word_longer_than_the_terminal_stays_whole() -> None:
    assert wrapped("see https://example.org/a/long/path now", 10, random.Random(0)).split() == [
        "see",
        "https://example.org/a/long/path",
        "now",
    ]


def test_wide_letters_take_two_columns() -> None:
    assert wrapped("aaaa 漢字漢字", 8, random.Random(0)) == "aaaa \n漢字漢字"
    assert wrapped("aaaa bbb", 8, random.Random(0)) == "aaaa bbb"


def test_every_letter_keeps_its_mark() -> None:
    wrap = WordWrap(6)
    shown = wrap.add("one t", True) + wrap.add("wo", False) + wrap.flush()
    assert shown == [
        ("o", True),
        ("n", True),
        ("e", True),
        (" ", True),
        ("\n", False),
        ("t", True),
        ("w", False),
        ("o", False),
    ]
