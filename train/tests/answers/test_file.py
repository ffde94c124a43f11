"""The file of answers keeps what was written whole, whatever ends the run."""

from __future__ import annotations

import pytest

from specdec_train.answers.file import AnswersFile, read_answers
from specdec_train.answers.record import Answered

ONE = Answered([1, 2, 3, 4], 2, 0.8, "00ff", True)
TWO = Answered([5, 6, 7], 1)


def test_answers_come_back_without_what_a_killed_run_was_writing(tmp_path):
    path = tmp_path / "answers.jsonl"
    with AnswersFile(path) as file:
        file.append([ONE])
    with path.open("ab") as cut:
        cut.write(b'{"ids": [1, 2')
    assert read_answers(path) == [ONE]
    with AnswersFile(path) as file:
        file.append([TWO])
    assert read_answers(path) == [ONE, TWO]
    assert (list(ONE.prompt), list(ONE.answer)) == ([1, 2], [3, 4])


@pytest.mark.parametrize("line", ["{}", "no", '{"ids": [1], "n": 2}', '{"ids": ["a"], "n": 1}'])
def test_lines_that_are_no_answers(line, tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"ids": [1, 2], "n": 1, "t": 0}\n' + line + "\n")
    with pytest.raises(ValueError, match=r'answers\.jsonl:2: needs \{"ids"'):
        read_answers(path)


def test_a_full_disk_is_said_in_a_sentence_and_loses_nothing(tmp_path):
    path = tmp_path / "answers.jsonl"
    with AnswersFile(path) as file:
        file.append([ONE])
        whole = file._file
        with (
            open("/dev/full", "wb", buffering=0) as file._file,
            pytest.raises(ValueError, match=r"No space left on device\): make room and go on with --resume"),
        ):
            file.append([TWO])
        file._file = whole
    assert read_answers(path) == [ONE]


def test_the_side_of_a_conversation_goes_by_its_source():
    assert Answered([1, 2], 1, source="00000001").is_held_out(2)
    assert not Answered([1, 2], 1, source="00000003").is_held_out(2)
    sides = [Answered([n, 2], 1).is_held_out(200) for n in range(300)]
    assert 30 < sum(sides) < 90
