"""What commands share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specdec_cli import output

WORDS = {"error": "error", "warn": "warning", "hint": "hint"}


def test_json_goes_to_a_file_or_to_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output.print_json({"a": Path("b")}, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == {"a": "b"}
    output.print_json([1], Path("-"))
    output.print_json([2])
    assert capsys.readouterr().out == "[\n  1\n]\n[\n  2\n]\n"


def test_columns_are_aligned_without_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["a", "long"], [["xyz", 1], ["", ""]])
    assert capsys.readouterr().out == "A    LONG\nxyz  1\n\n"
    output.print_table(["a"], [])
    output.print_fields({"ab": 1, "c": "d"})
    output.print_fields({})
    assert capsys.readouterr().out == "A\nab  1\nc   d\n"


@pytest.mark.parametrize("say", [output.error, output.warn, output.hint])
def test_a_message_is_one_line(say, capsys: pytest.CaptureFixture[str]) -> None:
    say("no model\nname one")
    assert capsys.readouterr().err == f"specdec: {WORDS[say.__name__]}: no model; name one\n"
