"""Edits: what changes is what was asked for, and nothing else."""

from __future__ import annotations

import ast

from zoo_recipe.corpus import SourceFile
from zoo_recipe.edits import file_edits

RENAMED = """def area(width, height):
    # width in metres
    scaled = box.width * width
    print("width", width=width)
    return [height for _ in range(width)]
"""
BEFORE = """class Shape:
    def outline(self, points):
        '''Draw é the outline.

        Twice.
        '''
        draw(points)
        return points

    def empty(self):
        '''Nothing but words.

        Nothing to be kept.
        '''
"""
AFTER = """def outline(self, points):
    draw(points)
    return points
"""


def source_file(text: str) -> SourceFile:
    return SourceFile("a.py", text, "0", len(text.encode()), "train")


def test_renaming_touches_the_variable_alone() -> None:
    other = "\n\ndef other(depth):\n    depth += 1\n    depth += 2\n    return depth\n"
    edits = [edit for seed in range(20) for edit in file_edits(source_file(RENAMED + other), seed=seed)]
    edit = next(edit for edit in edits if edit.question.startswith("Rename width to depth in this function"))
    assert edit.question.partition(":\n")[2] == RENAMED
    assert edit.line == 1
    assert edit.answer == (
        "def area(depth, height):\n"
        "    # width in metres\n"
        "    scaled = box.width * depth\n"
        '    print("width", width=depth)\n'
        "    return [height for _ in range(depth)]\n"
    )


def test_docstrings_are_removed_where_code_is_left() -> None:
    (edit,) = file_edits(source_file(BEFORE), seed=0)
    head = "Remove the docstring of this function:\ndef outline(self, points):\n    '''Draw"
    assert edit.question.startswith(head)
    assert edit.answer == AFTER
    assert edit.line == 2


def test_a_seed_decides_and_every_answer_is_python() -> None:
    file = source_file(BEFORE + "\n\n" + RENAMED)
    assert list(file_edits(file, seed=3)) == list(file_edits(file, seed=3))
    for seed in range(10):
        for edit in file_edits(file, seed=seed):
            ast.parse(edit.answer)
