"""One-turn dialogues made from functions: they train the chat tokens and reward copying."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence

from zoo_recipe.corpus import SourceFile
from zoo_recipe.edits import file_edits
from zoo_recipe.functions import functions
from zoo_recipe.tokenizer import ASSISTANT, USER

_MAX_BYTES = 2000


def dialogues(files: Sequence[SourceFile], *, num_written: int, num_edited: int, seed: int) -> list[str]:
    """Dialogues `<|user|>question<|assistant|>function` of two kinds.

    Writing: the question is a function's name and the first line of its docstring. Editing: the question
    is a function and what to change in it. The end-of-text token that closes an answer is the separator
    of the packed stream.

    Args:
        files: training files; held-out ones must not be among them.
        num_written, num_edited: how many to draw of each kind; fewer if there are not enough.
        seed: seed of the draws.
    """
    written = [pair for file in files for pair in _documented_functions(file)]
    edited = [(edit.question, edit.answer) for file in files for edit in file_edits(file, seed=seed)]
    rng = random.Random(seed)
    rng.shuffle(written)
    rng.shuffle(edited)
    chosen = written[:num_written] + edited[:num_edited]
    return [f"{USER}{question}{ASSISTANT}{answer}" for question, answer in chosen]


def _documented_functions(file: SourceFile) -> Iterator[tuple[str, str]]:
    """Question and answer for each documented function of a file."""
    for function in functions(file, max_bytes=_MAX_BYTES):
        docstring = ast.get_docstring(function.node)
        if docstring:
            summary = docstring.splitlines()[0].strip()
            yield f"Write the function {function.name}: {summary}", function.source
