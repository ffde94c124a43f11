"""Pieces of growing text: exact, and each with the right colour."""

from __future__ import annotations

import pytest
from speccheck.saved import tokenizer

from specdec.outputs import CompletionOutput
from specdec_cli.text.highlight import GrowingText, TextSpan, paint

TOKENIZER = tokenizer()
TEXT = "self é 日本 value 🎉!"
IDS: list[int] = TOKENIZER(TEXT)["input_ids"]


def output(text: str, num_tokens: int, guessed: tuple[int, ...] = ()) -> CompletionOutput:
    flags = [index in guessed for index in range(num_tokens)]
    return CompletionOutput(0, text, IDS[:num_tokens], is_from_draft=flags)


def pieces_of(prompt_token_ids: list[int], finished: CompletionOutput) -> list[TextSpan]:
    return list(GrowingText(TOKENIZER, prompt_token_ids).update(finished))


def test_pieces_of_a_finished_text_spell_it() -> None:
    pieces = pieces_of([1, 2], output(TEXT, len(IDS)))
    assert "".join(span.text for span in pieces) == TEXT
    assert "日" in [span.text for span in pieces], "a character of several tokens is one piece"


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_growing_text_never_shows_half_a_character(stride: int) -> None:
    growing = GrowingText(TOKENIZER, [1, 2])
    shown = ""
    for end in [*range(stride, len(IDS), stride), len(IDS)]:
        whole = "".join(span.text for span in pieces_of([1, 2], output(TEXT, end)))
        shown += "".join(span.text for span in growing.update(output(whole, end)))
        assert shown == whole
    assert shown == TEXT


def test_a_character_is_guessed_if_all_its_tokens_were() -> None:
    start = len(TOKENIZER("self é ")["input_ids"])
    width = len(TOKENIZER("日")["input_ids"])
    assert width == 3
    for guessed, expected in ((range(start, start + 3), True), (range(start + 1, start + 3), False)):
        pieces = pieces_of([], output(TEXT, len(IDS), tuple(guessed)))
        assert [span.is_guessed for span in pieces if span.text == "日"] == [expected]
        assert not any(span.is_guessed for span in pieces if span.text != "日")


def test_text_that_is_held_back_comes_later_or_never() -> None:
    growing = GrowingText(TOKENIZER, [])
    assert list(growing.update(output("se", len(IDS), (0,)))) == [TextSpan("se", True)]
    later = "".join(span.text for span in growing.update(output("self é", len(IDS), (0,))))
    assert later == "lf é"
    assert list(growing.update(output("self é", len(IDS), (0,)))) == []


def test_only_guessed_text_is_painted_and_only_in_colour() -> None:
    assert paint(TextSpan("a", True), is_coloured=True) == "\x1b[32ma\x1b[0m"
    assert paint(TextSpan("a", False), is_coloured=True) == "a"
    assert paint(TextSpan("a", True), is_coloured=False) == "a"
