"""Checks of a submission that need nothing but its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import isclose
from pathlib import Path
from typing import Any

from specdec import ConfigError
from specdec_cli.arena.numbers import numbers
from specdec_cli.arena.row import Row, Symbol
from specdec_cli.arena.stamp import stamps, tokens_of
from specdec_cli.arena.submission import FACTS, PLAIN, Submission, read_submission

SLACK_S = 1e-4
"""Seconds by which rounded times may overlap."""
_RELATIVE = 1e-9


def checked(folder: Path) -> tuple[Submission | None, list[str]]:
    """Return a submission, None if it cannot be read, and what does not hold, a sentence each.

    Raises:
        ConfigError: if there is no submission.
    """
    if not (folder / FACTS).is_file():
        read_submission(folder)
    try:
        submission = read_submission(folder)
    except ConfigError as error:
        return None, [str(error)]
    return submission, list(faults(submission))


def faults(submission: Submission) -> Iterator[str]:
    """Yield what is wrong with a submission, a sentence each; later checks rely on earlier ones."""
    for check in (_contestants, _questions, _answers, _times, _stamp_rows, _published):
        found = list(check(submission))
        yield from found
        if found:
            return


def _contestants(submission: Submission) -> Iterator[str]:
    facts = submission.facts
    names = [contestant.name for contestant in facts.contestants]
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{count} contestants are called {name!r}"
    seen = {row.contestant for row in submission.rows} | {row.contestant for row in submission.stamp_rows}
    for name in sorted(seen - set(names)):
        yield f"there are rows of {name!r}, which {FACTS} does not list"
    for contestant in facts.contestants:
        config = contestant.config or {}
        if (contestant.acceptance == "synthetic") is not contestant.is_synthetic:
            yield f"the acceptance of {contestant.name!r} is not {contestant.acceptance}: its configuration tells"
        if config.get("model") and not any(files.sha256 for files in contestant.drafters):
            yield f"{contestant.name!r} drafts with {config['model']!r}, and no hash of its files is given"


def _questions(submission: Submission) -> Iterator[str]:
    facts = submission.facts
    wanted = set(facts.suite.numbers)
    prompts: dict[int, str] = {}
    for name in (contestant.name for contestant in facts.contestants):
        for size in facts.batch_size:
            asked = Counter(
                (row.question, row.turn)
                for row in submission.rows
                if (row.contestant, row.batch_size) == (name, size)
            )
            what = f"{name!r} at batch size {size}"
            if {question for question, turn in asked if not turn} != wanted:
                yield f"{what} was not asked the questions that {FACTS} lists"
            if any(count > 1 for count in asked.values()):
                yield f"{what} answers a question twice"
    for row in submission.rows:
        if row.batch_size not in facts.batch_size:
            yield f"there are rows of batch size {row.batch_size}, which {FACTS} does not list"
            return
        if not row.turn and prompts.setdefault(row.question, row.prompt_sha256) != row.prompt_sha256:
            yield f"question {row.question} was another one for {row.contestant!r} than for those before it"


def _answers(submission: Submission) -> Iterator[str]:
    for row in submission.rows:
        what = f"{row.contestant!r}, batch size {row.batch_size}, question {row.question}"
        if row.num_tokens > submission.facts.max_tokens:
            yield f"{what}: {row.num_tokens} tokens, and {submission.facts.max_tokens} were the most"
        if row.contestant == PLAIN and any(len(step) == 4 and step[2] for step in row.steps):
            yield f"{what}: plain decoding drafted"


def _times(submission: Submission) -> Iterator[str]:
    turns: dict[tuple[str, int, int], list[Row]] = {}
    for row in submission.rows:
        turns.setdefault((row.contestant, row.batch_size, row.group), []).append(row)
    spans = []
    for (name, size, group), rows in turns.items():
        most = _most_at_once(rows)
        if most > size:
            yield f"{name!r} has {most} requests in flight at batch size {size}, group {group}: their times overlap"
        spans.append((min(row.start for row in rows), max(row.end for row in rows), name, size, group))
    spans.sort()
    for before, after in pairwise(spans):
        if after[0] < before[1] - SLACK_S:
            turn = "{!r} (batch size {}, group {})"
            yield (
                f"the turns of {turn.format(*before[2:])} and {turn.format(*after[2:])} overlap in time, and contestants "
                "take turns"
            )
            return


def _most_at_once(rows: Sequence[Row]) -> int:
    """Return the most answers that were under way at one moment."""
    moments = sorted(
        [(row.start, 1) for row in rows] + [(max(row.start, row.end - SLACK_S), -1) for row in rows]
    )
    most = now = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


def _stamp_rows(submission: Submission) -> Iterator[str]:
    prompts: dict[int, str] = {}
    lengths = {len(answer) for row in submission.stamp_rows if row.temperature for answer in row.answers}
    for row in submission.stamp_rows:
        what = f"the stamp of {row.contestant!r}, prompt {row.prompt}"
        if prompts.setdefault(row.prompt, row.prompt_sha256) != row.prompt_sha256:
            yield f"{what}: the prompt is another one than for those before it"
        wanted = submission.facts.stamp_samples if row.temperature else 1
        if len(row.answers) != wanted or (row.temperature and len(lengths) != 1):
            yield f"{what}: {wanted} answers of one length are needed"
        if row.places is not None and not _are_of(row.places, tokens_of(row)):
            yield f"{what}: log probabilities are not those of its tokens"


def _are_of(places: Sequence[Mapping[str, float]], tokens: Sequence[Symbol]) -> bool:
    return len(places) == len(tokens) and all(
        str(token) in top for token, top in zip(tokens, places, strict=True)
    )


def _published(submission: Submission) -> Iterator[str]:
    facts = submission.facts
    pairs: tuple[tuple[str, Any, Any], ...] = (
        ("numbers", facts.numbers, numbers(submission.rows)),
        ("stamps", facts.stamps, stamps(submission.stamp_rows, facts.contestants)),
    )
    for name, told, found in pairs:
        yield from _differences(told, found, name)


def _differences(told: Any, found: Any, where: str) -> Iterator[str]:
    """Yield where published values are not those of the rows."""
    if isinstance(told, dict) and isinstance(found, dict) and told.keys() == found.keys():
        for key in told:
            yield from _differences(told[key], found[key], f"{where}.{key}")
    elif isinstance(told, list) and isinstance(found, list) and len(told) == len(found):
        for index, (one, other) in enumerate(zip(told, found, strict=True)):
            yield from _differences(one, other, f"{where}.{index}")
    elif isinstance(told, float | int) and isinstance(found, float | int):
        if not isclose(told, found, rel_tol=_RELATIVE, abs_tol=_RELATIVE):
            yield f"{FACTS} says {where} = {told:g}, and the rows give {found:g}"
    elif told != found:
        yield f"{FACTS} says {where} = {str(told)[:60]!r}, and the rows give {str(found)[:60]!r}"
