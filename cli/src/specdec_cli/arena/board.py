"""A board: a folder of submissions that hold."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

from specdec import ConfigError
from specdec_cli.arena.submission import FACTS, PLAIN, ROWS, STAMP, Submission
from specdec_cli.arena.verify import checked


def add(folder: Path, board: Path) -> Path:
    """Pack a submission into its place in a board, and return that.

    Raises:
        ConfigError: if it does not hold, or is there already.
    """
    submission = _holding(folder)
    facts = submission.facts
    names = [contestant.name for contestant in facts.contestants if contestant.name != PLAIN]
    words = [Path(facts.target.name).name, facts.suite.name, *names[:1]]
    slug = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")
    place = board / f"{slug}-{facts.rows_sha256[ROWS][:8]}"
    if place.exists():
        raise ConfigError(f"{place} is there already: these rows were submitted before")
    place.mkdir(parents=True)
    shutil.copyfile(folder / FACTS, place / FACTS)
    for name in (ROWS, STAMP):
        found = folder / name
        text = (
            found.read_bytes() if found.is_file() else gzip.decompress((folder / f"{name}.gz").read_bytes())
        )
        (place / f"{name}.gz").write_bytes(gzip.compress(text, 9, mtime=0))
    return place


def read_board(board: Path) -> list[Submission]:
    """Return the submissions of a board, by name.

    Raises:
        ConfigError: if there are none, or one does not hold.
    """
    folders = sorted(path.parent for path in board.glob(f"*/{FACTS}"))
    if not folders:
        raise ConfigError(f"{board} holds no submissions: add one with specdec arena submit FOLDER {board}")
    return [_holding(folder) for folder in folders]


def _holding(folder: Path) -> Submission:
    submission, faults = checked(folder)
    if submission is None or faults:
        raise ConfigError(f"{folder} does not hold: {faults[0]}")
    return submission
