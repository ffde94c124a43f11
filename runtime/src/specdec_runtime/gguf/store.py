"""The cache folder of dequantised GGUF files, keyed by their content."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp

from specdec import ModelError
from specdec.folders import CACHE_VARIABLE, cache_folder

logger = logging.getLogger("specdec")

_DIGEST = re.compile(rb"[0-9a-f]{64}")

_FORM = "1"
"""Version of the format that `convert` writes; a new number makes every file be converted again."""


def stored(file: Path, dtype: str, *, keeps_blocks: bool = False) -> Path:
    """Return the directory of a GGUF file's model as safetensors with tokenizer; it is made if missing.

    A directory appears atomically. If several processes need the same one, the first makes it and the others wait. It is
    keyed by the file's content, `dtype` and the version of transformers, not by the file's path.

    Args:
        file: the GGUF file.
        dtype: dtype of the weights: `bfloat16`, `float16` or `float32`.
        keeps_blocks: whether they stay in blocks where they can.

    Raises:
        ModelError: if the file cannot be read, or the model cannot be stored.
    """
    models = cache_folder() / "models"
    try:
        digest = _digest(file, models)
        key = hashlib.sha256(f"{_FORM} {version('transformers')} {digest}".encode()).hexdigest()[:16]
        folder = models / f"{file.stem}-{dtype}{'-blocks' * keeps_blocks}-{key}"
        if folder.is_dir():
            return folder
        models.mkdir(parents=True, exist_ok=True)
        with _locked(models / f".{folder.name}.lock"):
            if not folder.is_dir():
                _make(file, dtype, folder, keeps_blocks=keeps_blocks)
    except OSError as error:
        raise ModelError(
            f"{file} cannot be kept as safetensors in {models} ({error.strerror or error}): make room there, or set "
            f"{CACHE_VARIABLE} to another folder"
        ) from error
    return folder


def _make(file: Path, dtype: str, folder: Path, *, keeps_blocks: bool) -> None:
    """Write the directory under a temporary name, then rename it."""
    from specdec_runtime.gguf.convert import convert

    for left_behind in folder.parent.glob(f".{folder.name}.*.part"):  # from a process that was killed
        shutil.rmtree(left_behind)
    how = "laid out for products" if keeps_blocks else f"dequantised to {dtype}"
    message = f"{file.name} is {how} once, and kept in {folder}"
    if sys.stderr.isatty():
        print(f"specdec: {message}", file=sys.stderr)
    else:
        logger.warning(message)  # it takes seconds, in which nothing else is said
    temporary = Path(mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        convert(file, dtype, temporary, keeps_blocks=keeps_blocks)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file lock, which the system releases when the process ends in any way."""
    from filelock import FileLock

    with FileLock(path):
        yield


def _digest(file: Path, models: Path) -> str:
    """Return the SHA-256 of a file's content, cached by its path, inode, size and modification time."""
    status = file.stat()
    stamp = f"{file.resolve()} {status.st_ino} {status.st_size} {status.st_mtime_ns}"
    remembered = models / "digests" / hashlib.sha256(stamp.encode()).hexdigest()
    with suppress(OSError):
        found = remembered.read_bytes()
        if _DIGEST.fullmatch(
            found
        ):  # else the file was cut short, and any other such file would be taken for the same model
            return found.decode("ascii")
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    with suppress(OSError):  # on failure the file is hashed again next time
        remembered.parent.mkdir(parents=True, exist_ok=True)
        temporary = remembered.with_suffix(f".{os.getpid()}")
        temporary.write_text(digest, encoding="ascii")
        temporary.replace(remembered)
    return digest
