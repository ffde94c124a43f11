"""Finds what numba compiled, ahead or in an earlier run, and keeps it; what cannot be used costs compiling, never the run.

numba's own cache raises in the middle of a call if its folder is missing, full or damaged. It also checks only the file of a
function, not the files of the functions it calls.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import llvmlite
import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from specdec.folders import COMPILED_VARIABLE, compiled_folder
from specdec_kernels.cpu.compiled import still_compiling
from specdec_kernels.cpu.compiled.target import FEATURES, TARGET, Target
from specdec_runtime.interfaces.blocks import KINDS

logger = logging.getLogger("specdec.compiled")

_HERE = Path(__file__).parents[1]
_CALLED = tuple(_HERE / name for name in ("compiled", "rows", "loops"))
"""Packages whose functions are called from other packages, and compiled into them."""
_AHEAD = _HERE / "ahead"
"""Code that was compiled ahead: it comes with wheels, and `make install` leaves it."""
_DIGEST_BYTES = hashlib.sha256().digest_size
UNCOMPILED = ("cache.py", "still_compiling.py")
"""Files beside these whose functions are never compiled."""
_VERSIONS = sys.implementation.cache_tag, numba.__version__, llvmlite.__version__
_BLOCK = b"\0" * 4096
_rebuilt: Any = CompileResult._rebuild  # numba is not annotated
_pickled: Any = dumps
_PAUSE_S = 15.0
_last_compiled = -inf
"""When something was last compiled, by `time.monotonic`."""
_warned: set[str] = set()


class CodeCache(NullCache):
    """The cache of one function: a file for each combination of argument types, processor and versions.

    A file holds the digest of the sources it was made from, the digest of its content, and the content. A file that was
    made from other sources, or is damaged, is compiled again and replaced. Code that was compiled ahead is in files of the same
    form, compressed, beside the sources.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._folder = Path(function.__code__.co_filename).resolve().parent

    @property
    def cache_path(self) -> str:
        """The folder of the function's files."""
        kind = hashlib.sha256(str(self._folder).encode()).hexdigest()[:16]
        return str(compiled_folder() / f"{self._folder.name}_{kind}")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code kept for a signature; None, which compiles it, if there is none that can be used."""
        rtsys.initialize(target_context)  # all that kept code needs; compiling loads what numba can compile
        path = self._path(sig, target_context.codegen())
        found = self._read(path, target_context)
        if found is None and TARGET is not None:
            found = self._read(ahead_folder(TARGET) / path.name, target_context)
        if found is None:
            _announce()
            still_compiling.report()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled for a signature; warn once if that is not possible."""
        try:
            assert not data.library.has_dynamic_globals, f"{self._name} has addresses of this process in it"
            content: bytes = _pickled(data._reduce())
            _write(
                self._path(sig, data.codegen),
                _digest_of(self._folder) + hashlib.sha256(content).digest() + content,
            )
        except Exception as error:  # the disk, or numba's pickling; the code is there and can run
            _tell_not_kept(error)

    def _read(self, path: Path, target_context: Any) -> Any:
        """Return the code in a file; None if there is none that can be used."""
        try:
            content = path.read_bytes()
        except OSError:  # not there; if it can never be, `save_overload` warns
            return None
        try:
            if path.parent.parent == _AHEAD:
                content = zlib.decompress(content)
            sources, rest = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            digest, data = rest[:_DIGEST_BYTES], rest[_DIGEST_BYTES:]
            if not content or sources != _digest_of(self._folder):
                return None
            if hashlib.sha256(data).digest() != digest:
                raise ValueError("its checksum differs")
            return _rebuilt(target_context, *pickle.loads(data))
        except Exception as error:  # from numba or LLVM, which may raise anything
            _warn_once(
                "damaged",
                "compiled code in %s is damaged (%s): compiled again, which may take a minute or two",
                path,
                error,
            )
            return None

    def _path(self, sig: Any, codegen: Any) -> Path:
        key = (str(sig), codegen.magic_tuple(), *_VERSIONS)
        return (
            Path(self.cache_path) / f"{self._name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"
        )


def ahead_folder(target: Target) -> Path:
    """Return the folder of code that was compiled ahead for a target; most installations lack some of them."""
    return _AHEAD / target.name


def keep_ahead(target: Target, compiled: Path) -> int:
    """Replace the code compiled ahead for a target by what is in a folder for compiled code; returns the number of functions.

    Raises:
        OSError: if that is not possible.
    """
    folder = ahead_folder(target)
    if folder.exists():
        shutil.rmtree(folder)
    files = sorted(compiled.glob("*/*.nbc"))
    for file in files:
        _write(folder / file.name, zlib.compress(file.read_bytes(), 9))
    return len(files)


def counts() -> tuple[int, int]:
    """Return how many functions of this package are compiled for this processor, as they are now: ahead, and kept."""
    ahead = () if TARGET is None else ahead_folder(TARGET).glob("*.nbc")
    return _num_current(ahead), _num_current(compiled_folder().glob("*/*.nbc"))


def _num_current(files: Iterable[Path]) -> int:
    """Return how many files are made from the sources of this package as they are now."""
    digests = {_digest_of(folder) for folder in (*_CALLED, _HERE / "verification")}
    count = 0
    for file in files:
        with suppress(OSError, zlib.error):
            content = file.read_bytes()
            if file.parent.parent == _AHEAD:
                content = zlib.decompressobj().decompress(content, _DIGEST_BYTES)
            count += content[:_DIGEST_BYTES] in digests
    return count


def check_folder() -> None:
    """Write a block to the folder for compiled code and delete it again.

    Raises:
        OSError: if that is not possible.
    """
    folder = compiled_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(_BLOCK)


def not_kept(error: Exception) -> str:
    """Return why compiled code is not kept, and the remedy."""
    reason = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
    return (
        f"compiled code cannot be kept in {compiled_folder()} ({reason}): make room there, or set {COMPILED_VARIABLE} to "
        "another folder"
    )


def _write(path: Path, content: bytes) -> None:
    """Write a file, which appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{uuid4().hex[:16]}")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@cache
def _digest_of(folder: Path) -> bytes:
    """Return the digest of the sources that functions in a folder are compiled from, and of what compiles them, for what."""
    made_for = *_VERSIONS, sorted(FEATURES.items()), TARGET, sorted(KINDS.items())
    digest = hashlib.sha256(repr(made_for).encode())
    for each in dict.fromkeys((folder, *_CALLED)):
        for file in sorted(each.glob("*.py")):
            if file.name not in UNCOMPILED:
                digest.update(file.read_bytes())
    return digest.digest()


def _announce() -> None:
    """Say that code is being compiled, again only after a while without, so that no long compilation is silent."""
    global _last_compiled
    before, _last_compiled = _last_compiled, monotonic()
    if _last_compiled - before < _PAUSE_S:
        return
    try:
        check_folder()
    except OSError as error:
        _tell_not_kept(error)
    else:
        logger.warning(
            "compiling for this machine, up to a minute or two for what it has not run before; kept in %s",
            compiled_folder(),
        )


def _tell_not_kept(error: Exception) -> None:
    _warn_once(
        "not kept", "%s; until then every start compiles, which may take a minute or two", not_kept(error)
    )


def _warn_once(kind: str, message: str, *values: object) -> None:
    """Log a warning, unless one of its kind has been logged in this process."""
    if kind not in _warned:
        _warned.add(kind)
        logger.warning(message, *values)
