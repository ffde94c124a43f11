"""One-turn dialogues made of documented functions, so that the chat tokens are not strangers."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence

from specdec_train.corpus import SourceFile
from specdec_train.tokenizer import ASSISTANT, USER

_MAX_BYTES = 2000


def dialogues(files: Sequence[SourceFile], *, count: int, seed: int) -> list[str]:
    """Dialogues `<|user|>question<|assistant|>function` drawn from documented functions.

    The question is the name and the first line of the docstring; the answer is the function's source.
    The end-of-text token that closes an answer is the separator of the packed stream.

    Args:
        files: training files; held-out ones must not be among them.
        count: how many to draw; fewer if there are not so many.
        seed: seed of the draw.
    """
    found = [pair for file in files for pair in _documented_functions(file)]
    random.Random(seed).shuffle(found)
    return [f"{USER}{question}{ASSISTANT}{answer}" for question, answer in found[:count]]


def _documented_functions(file: SourceFile) -> Iterator[tuple[str, str]]:
    """Question and answer for each documented module-level function and method of a file."""
    lines = file.text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(file.text)):
        if not isinstance(node, ast.FunctionDef) or node.decorator_list:
            continue
        docstring = ast.get_docstring(node)
        source = "".join(lines[node.lineno - 1 : node.end_lineno])
        if not docstring or len(source) > _MAX_BYTES:
            continue
        indent = " " * node.col_offset
        body = [line.removeprefix(indent) for line in source.splitlines(keepends=True)]
        summary = docstring.splitlines()[0].strip()
        yield f"Write the function {node.name}: {summary}", "".join(body)
