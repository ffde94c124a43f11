"""The corpus: Python files below one folder, split by the hash of their relative path."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Split = Literal["train", "heldout"]

# Tests, third-party code, and generated tables whose near-copies would land on both sides of the split.
EXCLUDED_FOLDERS = frozenset(
    {"test", "tests", "idle_test", "site-packages", "__pycache__", "encodings", "pydoc_data"}
)


@dataclass(frozen=True)
class SourceFile:
    """One file of the corpus.

    Args:
        path: path relative to the corpus root, with forward slashes.
        text: the decoded content, newlines as they are in the file.
        sha256: hex digest of the file's bytes.
        num_bytes: size of the file in bytes.
        split: which side of the split the file is on.
    """

    path: str
    text: str
    sha256: str
    num_bytes: int
    split: Split


@dataclass(frozen=True)
class Corpus:
    """All files of a corpus, sorted by path."""

    files: tuple[SourceFile, ...]

    def split(self, name: Split) -> list[SourceFile]:
        """The files of one side of the split, sorted by path."""
        return [file for file in self.files if file.split == name]

    def num_bytes(self, name: Split) -> int:
        """Size of one side of the split in bytes."""
        return sum(file.num_bytes for file in self.split(name))


def stdlib_root() -> Path:
    """Folder of the running interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def split_of(path: str, heldout_permille: int) -> Split:
    """Side of the split of a relative path; it depends on the path alone, so it never changes.

    Args:
        path: path relative to the corpus root, with forward slashes.
        heldout_permille: share of paths that are held out, in thousandths.
    """
    bucket = int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") % 1000
    return "heldout" if bucket < heldout_permille else "train"


def read_corpus(root: Path, *, heldout_permille: int = 70, only: Sequence[str] = ()) -> Corpus:
    """Read every UTF-8 `*.py` file below `root` that is neither a test nor a third-party package.

    Args:
        root: folder to walk.
        heldout_permille: share of files held out of training, in thousandths.
        only: relative paths to keep; empty keeps all.

    Raises:
        ValueError: a path in `only` is not in the corpus, or nothing was found.
    """
    files: list[SourceFile] = []
    for file in sorted(root.rglob("*.py")):
        relative = file.relative_to(root)
        if EXCLUDED_FOLDERS.intersection(relative.parts[:-1]):
            continue
        name = relative.as_posix()
        if only and name not in only:
            continue
        data = file.read_bytes()
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            continue
        if not text.strip():
            continue
        digest = hashlib.sha256(data).hexdigest()
        files.append(SourceFile(name, text, digest, len(data), split_of(name, heldout_permille)))
    missing = set(only) - {file.path for file in files}
    if missing:
        raise ValueError(
            f"not in the corpus below {root}: {sorted(missing)}; use paths relative to that folder"
        )
    if not files:
        raise ValueError(f"no Python files below {root}; is this interpreter's standard library zipped away?")
    return Corpus(tuple(files))
