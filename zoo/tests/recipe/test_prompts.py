"""Prompts: cut from held-out files only, where something goes on."""

from __future__ import annotations

import ast

import pytest
from zoo_recipe.corpus import SourceFile
from zoo_recipe.prompts import KINDS, MAX_TOKENS, MIN_TOKENS, cut_prompts
from zoo_recipe.regions import KINDS as REGION_KINDS
from zoo_recipe.regions import regions
from zoo_recipe.tokenizer import encode, train_tokenizer

BODY = "\n".join(f"    step_{i} = compute(value, {i})" for i in range(12))
DOC = "\n".join(
    f"    Line {i} of a description that explains what the é in the name is for." for i in range(8)
)
TABLE = "\n".join(f"    'key{i}': {i}," for i in range(12))
TEXT = f'''import os


def work(value):
    """Work.

{DOC}
    """
{BODY}
    return value


TABLE = {{
{TABLE}
}}


def total(first, second):
    third = first + second
    third += first
    third += second
    return third


def scale(values, factor):
    result = [factor * value for value in values]
    result += [factor]
    result += values
    return result
'''
TOKENIZER = train_tokenizer([TEXT], vocab_size=500, max_length=1024)
HELDOUT = SourceFile("a.py", TEXT, "0", len(TEXT.encode()), "heldout")
TRAIN = SourceFile("b.py", TEXT, "0", len(TEXT.encode()), "train")


def test_regions_are_where_they_should_be() -> None:
    found = regions(TEXT)
    ast.parse(TEXT)
    for region in found:
        assert 0 <= region.shown <= region.start < region.stop < len(TEXT)
    by_kind = {kind: [region for region in found if region.kind == kind] for kind in REGION_KINDS}
    (docstring,) = by_kind["docstring"]
    assert TEXT[docstring.shown :].startswith('"""Work.')
    assert TEXT[docstring.start : docstring.stop].strip()[:4] in DOC
    (function,) = by_kind["function"]
    assert TEXT[function.shown :].startswith("step_0 = ")
    assert {TEXT[region.shown :].split()[0] for region in by_kind["repetition"]} == {"step_0", "'key0':"}


def test_short_things_are_no_regions() -> None:
    assert (
        regions(
            'import a\nimport b\nimport c\nimport d\n\n\ndef f():\n    """Doc."""\n    return [1, 2, 3, 4]\n'
        )
        == []
    )


def test_prompts_are_prefixes_within_bounds() -> None:
    prompts = cut_prompts([HELDOUT], TOKENIZER, per_kind=1, seed=5)
    assert [prompt.kind for prompt in prompts] == list(KINDS)
    assert prompts[-1].prompt.startswith("<|user|>Re")
    assert prompts[-1].prompt.endswith("<|assistant|>")
    for prompt in prompts[:-1]:
        start = TEXT.index(prompt.prompt)
        end = start + len(prompt.prompt)
        assert start == 0 or TEXT[start - 1] == "\n"
        assert not prompt.prompt[-1].isspace()
        assert TEXT[end].isspace()
        (ids,) = encode(TOKENIZER, [prompt.prompt])
        assert MIN_TOKENS <= len(ids) <= MAX_TOKENS
        whole = encode(TOKENIZER, [TEXT[start:]])[0]
        assert whole[: len(ids)] == ids, "a cut never splits a token"
        assert prompt.source == f"a.py:{TEXT[:end].count(chr(10)) + 1}"


def test_same_seed_same_prompts() -> None:
    assert cut_prompts([HELDOUT], TOKENIZER, per_kind=2, seed=5) == cut_prompts(
        [HELDOUT], TOKENIZER, per_kind=2, seed=5
    )
    assert cut_prompts([HELDOUT], TOKENIZER, per_kind=2, seed=5) != cut_prompts(
        [HELDOUT], TOKENIZER, per_kind=2, seed=6
    )


def test_training_files_are_refused() -> None:
    with pytest.raises(ValueError, match=r"held-out files only, got \['b.py'\]"):
        cut_prompts([HELDOUT, TRAIN], TOKENIZER, per_kind=1, seed=5)
