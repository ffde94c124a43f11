"""Held-out prompts: text unseen by model and tokenizer, cut where there is something to continue."""

from __future__ import annotations

import json
import lzma
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from zoo_recipe.corpus import SourceFile
from zoo_recipe.edits import Edit, file_edits
from zoo_recipe.regions import KINDS as REGION_KINDS
from zoo_recipe.regions import Region, regions
from zoo_recipe.tokenizer import ASSISTANT, USER, encode

KINDS = (*REGION_KINDS, "edit")

MIN_TOKENS = 20
MAX_TOKENS = 400

# After a word or sign and before white space: no token spans such a position.
_CUT = re.compile(r"\S(?=\s)")


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Args:
        prompt: the text.
        kind: `docstring`, `function` or `repetition` for the construct that is cut in the middle; `edit`
            for a dialogue that asks to change a function.
        source: file and line of the cut, or of the function, as `path:line`.
    """

    prompt: str
    kind: str
    source: str


def cut_prompts(
    files: Sequence[SourceFile], tokenizer: PreTrainedTokenizerFast, *, per_kind: int, seed: int
) -> list[Prompt]:
    """Cut prompts of 20 to 400 tokens from held-out files, with the kinds interleaved.

    Args:
        files: held-out files.
        tokenizer: measures the length of prompts; they do not depend on it otherwise.
        per_kind: prompts of each kind; fewer if there are not enough positions to cut.
        seed: seed of positions and lengths.

    Raises:
        ValueError: a file belongs to the training side.
    """
    leaked = [file.path for file in files if file.split != "heldout"]
    if leaked:
        raise ValueError(f"prompts must come from held-out files only, got {leaked[:5]}")
    columns = [list(_kind_prompts(files, tokenizer, kind, per_kind, seed)) for kind in KINDS]
    return [prompt for row in zip_longest(*columns) for prompt in row if prompt is not None]


def write_prompts(prompts: Sequence[Prompt], path: Path) -> None:
    """Write prompts as JSON lines, compressed."""
    lines = [json.dumps(asdict(prompt), ensure_ascii=False) for prompt in prompts]
    path.write_bytes(lzma.compress("\n".join([*lines, ""]).encode(), preset=9))


def _kind_prompts(
    files: Sequence[SourceFile], tokenizer: PreTrainedTokenizerFast, kind: str, count: int, seed: int
) -> Iterator[Prompt]:
    """Up to `count` prompts of one kind, from the files in rotation, so that long files do not dominate."""
    rng = random.Random(f"{seed} {kind}")
    queues: list[list[Callable[[], Prompt | None]]] = []
    for file in files:
        places: list[Callable[[], Prompt | None]]
        if kind == "edit":
            places = [partial(_ask, file, edit, tokenizer) for edit in file_edits(file, seed=seed)]
        else:
            places = [
                partial(_cut, file, region, tokenizer, rng)
                for region in regions(file.text)
                if region.kind == kind
            ]
        rng.shuffle(places)
        if places:
            queues.append(places)
    rng.shuffle(queues)
    while queues and count > 0:
        for places in queues:
            prompt = places.pop()()
            if prompt is not None and count > 0:
                count -= 1
                yield prompt
        queues = [places for places in queues if places]


def _ask(file: SourceFile, edit: Edit, tokenizer: PreTrainedTokenizerFast) -> Prompt | None:
    """A prompt that asks for an edit, or None if it would be too long or too short."""
    return _prompt(f"{USER}{edit.question}{ASSISTANT}", "edit", file, edit.line, tokenizer)


def _prompt(
    text: str, kind: str, file: SourceFile, line: int, tokenizer: PreTrainedTokenizerFast
) -> Prompt | None:
    """A prompt, or None if it would be too long or too short."""
    fits = MIN_TOKENS <= len(encode(tokenizer, [text])[0]) <= MAX_TOKENS
    return Prompt(text, kind, f"{file.path}:{line}") if fits else None


def _cut(
    file: SourceFile, region: Region, tokenizer: PreTrainedTokenizerFast, rng: random.Random
) -> Prompt | None:
    """A prompt that begins at a line before `region` and ends inside it, or None if too long or too short."""
    ends = [match.end() for match in _CUT.finditer(file.text, region.start, region.stop + 1)]
    if not ends:
        return None
    end = rng.choice(ends)
    wanted = MIN_TOKENS * (MAX_TOKENS / MIN_TOKENS) ** rng.random()
    lines = file.text[:end].splitlines(keepends=True)
    sizes = [len(ids) for ids in encode(tokenizer, lines)]
    kept = len(lines)
    start, total = end, 0
    while kept and (total < wanted or start > region.shown):
        kept -= 1
        total += sizes[kept]
        start -= len(lines[kept])
    return _prompt(file.text[start:end], region.kind, file, len(lines), tokenizer)
