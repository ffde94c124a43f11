"""Prompts of an audit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specdec import ConfigError
from specdec_cli.bench.prompt_file import ChatPrompt
from specdec_cli.bench.prompt_file import read_prompts as read_file

Prompt = str | list[int]
_TOSSES = (
    "heads tails heads heads tails heads tails tails heads heads tails heads tails heads heads heads tails heads tails tails "
    "heads tails heads heads tails"
)
_COLOURS = "red blue green red blue green green red blue red green blue red blue green red red blue green blue red green red"
_NOTES = "A C E A C D A C E A D C A C E A C D E A C E A C D A E C A C E A"
_SET = """    def set_width(self, width):
        self.width = width
        return self

    def set_height(self, height):
        self.height = height
        return self

    def set_"""
_READ = """def read_lines(path):
    with open(path) as file:
        return file.read().splitlines()


def read_words(path):
    with open(path) as file:
        return file.read().split()


def read_"""
_TESTS = """class AddTest(unittest.TestCase):
    def test_zero(self):
        self.assertEqual(add(0, 0), 0)

    def test_one(self):
        self.assertEqual(add(1, 0), 1)

    def test_"""
_ORDER = """Order: two cups of tea, one slice of cake.
Order: one cup of coffee, two slices of cake.
Order: three cups of tea, one slice of bread.
Order:"""
_DIARY = """On Monday I walked to the lake and read a book. On Tuesday I walked to the park and read a letter.
On Wednesday I walked to the"""
_TABLE = """| name | age | city |
|---|---|---|
| Anna | 31 | Oslo |
| Ben | 27 | Rome |
| Clara | 45 | Oslo |
| David |"""
_JSON = """{"id": 1, "state": "open", "owner": "anna"}
{"id": 2, "state": "closed", "owner": "ben"}
{"id": 3, "state": "open", "owner": "anna"}
{"id": 4, "state": \""""
_LOG = """10:00:01 worker 1 started job 7
10:00:02 worker 2 started job 8
10:00:04 worker 1 finished job 7
10:00:05 worker"""
_IMPORTS = """import os
import sys
import json


def main(arguments):
    """
_PLAIN = (
    "The old house at the end of the road had been empty for years, and nobody in the village could say who"
)
_QUESTION = "Question: What is the capital of France?\nAnswer: Paris.\nQuestion: What is the capital of Italy?\nAnswer:"
_DICE = "4 2 6 1 4 2 5 3 4 2 6 6 1 4 2 5 1 3 4 2 6 1 5 4 2 6 1 4 2"
_RECIPE = "Take two eggs. Take one onion. Take some salt. Take two spoons of oil. Take one"
BUILT_IN: tuple[Prompt, ...] = (
    _TOSSES, _SET, _COLOURS, _READ, _NOTES, _ORDER, _DICE, _TESTS, _DIARY, _JSON, _TABLE, _LOG, _IMPORTS, _RECIPE, _PLAIN,
    _QUESTION,
)  # fmt: skip
"""Repetitive texts, for which drafts are made, with several plausible continuations, which expose wrong choices."""


def read_prompts(path: Path | None) -> Sequence[Prompt]:
    """Return the prompts of a file as completions take them; see `specdec_cli.bench.prompt_file.read_prompts`.

    Args:
        path: the file; None uses the built-in prompts.

    Raises:
        ConfigError: naming the line that is wrong, or that needs a chat template.
    """
    if path is None:
        return BUILT_IN
    return [_text_or_ids(prompt, place) for place, prompt in read_file(path)]


def _text_or_ids(prompt: ChatPrompt | list[int], place: str) -> Prompt:
    if isinstance(prompt, list):
        return prompt
    if len(prompt.messages) > 1 or prompt.later:
        raise ConfigError(f"{place}: an audit asks for completions: give 'prompt' or 'prompt_token_ids'")
    return str(prompt.messages[0]["content"])
