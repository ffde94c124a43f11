"""A submission: a folder with raw rows, and what was measured with what."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from specdec import ConfigError
from specdec_cli.arena.row import Record, Row, StampRow
from specdec_cli.bench.lines import json_lines
from specdec_cli.bench.suites.human_eval import installed_file

FACTS, ROWS, STAMP = "arena.json", "rows.jsonl", "stamp.jsonl"
PLAIN = "plain"
_CHUNK = 2**20

Line = TypeVar("Line", bound=Record)


class Files(Record):
    """A model: its name, and the hashes of its files; none for one that only a server has."""

    name: str
    sha256: dict[str, str]

    @classmethod
    def of(cls, name: str, path: str | None) -> Files:
        """Hash a file, or the files of a folder, which is called by its last name alone."""
        found = Path(path) if path else None
        if found is None or not found.exists():
            return cls(name=name, sha256={})
        every = sorted(found.iterdir()) if found.is_dir() else [found]
        name = name if name != str(found) else found.name
        return cls(name=name, sha256={file.name: file_sha256(file) for file in every if file.is_file()})

    @property
    def digest(self) -> str:
        """The first digits of a hash over all hashes, or none."""
        text = json.dumps(self.sha256, sort_keys=True).encode()
        return hashlib.sha256(text).hexdigest()[:12] if self.sha256 else ""


class Contestant(Record):
    """Plain decoding, or something that drafts."""

    name: str
    acceptance: Literal["real", "synthetic", "none"]
    """Synthetic: a sampler accepts at given rates; the text is meaningless."""
    config: dict[str, Any] | None = None
    """`speculative_config`, of one that ran here."""
    url: str | None = None
    fields: dict[str, Any] = Field(default_factory=dict)
    """Of every request to a server."""
    drafters: list[Files] = Field(default_factory=list)

    @property
    def is_synthetic(self) -> bool:
        """Whether its configuration accepts at given rates."""
        return is_synthetic(self.config)


class Surroundings(Record):
    """Where and how a submission was made; see `bench.environment.surroundings`."""

    time: str
    command: list[str]
    commit: str | None = None
    versions: dict[str, str]
    python: str
    platform: str
    cpu: str | None
    num_cpus: int | None
    num_threads: int
    device: str
    note: str
    """How the servers were started, in the user's words."""


class Questions(Record):
    """The questions that were asked."""

    name: str
    sha256: str
    """Of the file, as it is unpacked."""
    numbers: list[int]
    """Their lines, from 0."""
    num_left_out: int = 0
    """Questions too long for the model."""

    @staticmethod
    def sha256_of(file: Path | None) -> str:
        """Return the hash of a suite's file; without, of the tasks that HumanEval's package has."""
        return file_sha256(file or installed_file())


class Facts(Record):
    """`arena.json`: everything but the rows, whose hashes it has; `numbers` and `stamps` follow from the rows."""

    format: Literal[1] = 1
    target: Files
    dtype: str
    suite: Questions
    contestants: list[Contestant]
    batch_size: list[int]
    max_tokens: int
    temperature: float
    seed: int
    stamp_samples: int
    stamp_temperature: float
    environment: Surroundings
    rows_sha256: dict[str, str]
    numbers: list[dict[str, Any]]
    stamps: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Submission:
    """A folder that was read."""

    folder: Path
    facts: Facts
    rows: Sequence[Row]
    stamp_rows: Sequence[StampRow]
    """Of the stamp."""


def read_submission(folder: Path) -> Submission:
    """Read a submission, each line checked by itself.

    Raises:
        ConfigError: naming the file and line that is missing, no JSON, or impossible.
    """
    if not (folder / FACTS).is_file():
        raise ConfigError(f"{folder} holds no {FACTS}: give a folder that specdec arena run wrote")
    text = (folder / FACTS).read_text(encoding="utf-8")
    try:
        facts = Facts.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(f"{folder / FACTS}: {_said(error)}") from None
    for name in (ROWS, STAMP):
        if file_sha256(_file(folder, name)) != facts.rows_sha256.get(name):
            raise ConfigError(
                f"{folder / name} is not the file that {FACTS} was written with: its hash differs"
            )
    return Submission(folder, facts, _read(folder, ROWS, Row), _read(folder, STAMP, StampRow))


def write_submission(
    folder: Path, facts: Mapping[str, Any], rows: Sequence[Row], stamp_rows: Sequence[StampRow]
) -> None:
    """Write a folder; `facts` are those of `Facts` without what follows from the rows."""
    from specdec_cli.arena.numbers import numbers
    from specdec_cli.arena.stamp import stamps

    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in ((ROWS, rows), (STAMP, stamp_rows)):
        text = "".join(line.model_dump_json(exclude_none=True) + "\n" for line in lines)
        (folder / name).write_text(text, encoding="utf-8")
    made = {
        "rows_sha256": {name: file_sha256(folder / name) for name in (ROWS, STAMP)},
        "numbers": numbers(rows),
        "stamps": stamps(stamp_rows, facts["contestants"]),
    }
    whole = Facts.model_validate({**facts, **made})
    (folder / FACTS).write_text(whole.model_dump_json(indent=1) + "\n", encoding="utf-8")


def is_synthetic(config: Mapping[str, Any] | None) -> bool:
    """Return whether a configuration accepts at given rates."""
    return any(key.startswith("synthetic_") for key in config or ())


def file_sha256(path: Path) -> str:
    """Return the hash of a file, unpacked if its name ends in `.gz`."""
    digest = hashlib.sha256()
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _file(folder: Path, name: str) -> Path:
    """Return a file of lines, which a board has packed."""
    found = next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
    if found is None:
        raise ConfigError(f"{folder} holds no {name}")
    return found


def _read(folder: Path, name: str, kind: type[Line]) -> list[Line]:
    found = []
    for place, entry in json_lines(_file(folder, name)):
        try:
            found.append(kind.model_validate(entry))
        except ValidationError as error:
            raise ConfigError(f"{place}: {_said(error)}") from None
    return found


def _said(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else str(first["msg"]).removeprefix("Value error, ")
