"""Synchronises the cache file with the remembered responses: read at the start, written at the end."""

from __future__ import annotations

import logging
import os
import weakref
from pathlib import Path

from specdec import ConfigError
from specdec.interfaces import TargetInfo
from specdec_plugin_suffix.cache_file import part_of, read_responses, write_responses
from specdec_plugin_suffix.memory import ResponseMemory

logger = logging.getLogger("specdec")


class CacheKeeper:
    """Reads and writes one cache file.

    A file without write permission is only read. With several ranks, only the first one writes. If several engines share a
    file, the last one to end determines its contents.

    Args:
        path: the file.
        memory: the responses to fill from the file and to save.
        target: the target whose tokenizer and vocabulary the file must match.
        is_read_only: never write the file.
    """

    def __init__(
        self, path: Path, memory: ResponseMemory, target: TargetInfo, *, is_read_only: bool = False
    ) -> None:
        self._path = Path(os.path.expanduser(path)).absolute()
        self._memory = memory
        self._target = target
        self._is_read_only = is_read_only
        self._num_saved = 0
        self._process = os.getpid()

    def read(self) -> None:
        """Read the file, if it exists.

        Raises:
            ConfigError: if it cannot be used, or if it does not exist and cannot be created.
        """
        try:
            is_there = self._path.exists()
            if not is_there:  # and some folders that are said to take files do not
                if not os.access(self._path.parent, os.W_OK):
                    raise PermissionError
                part_of(self._path).touch()
                part_of(self._path).unlink()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no permission"
            raise ConfigError(
                f"suffix_decoding_cache_path: {str(self._path)!r} does not exist and cannot be made ({reason}): "
                f"{str(self._path.parent)!r} is not a folder that can be written to, or the name is none"
            ) from None
        if is_there:
            fingerprint, vocab_size = self._target.tokenizer_fingerprint, self._target.vocab_size
            for response in read_responses(self._path, fingerprint, vocab_size):
                self._memory.add(response)
            self._memory.settle()
        self._num_saved = self._memory.num_added

    def write(self) -> None:
        """Write the file if responses were added since it was read or written.

        Raises:
            OSError: if it cannot be written.
        """
        is_other_process = os.getpid() != self._process
        is_read_only = self._is_read_only or (self._path.exists() and not os.access(self._path, os.W_OK))
        if self._memory.num_added == self._num_saved or is_other_process or is_read_only:
            return
        fingerprint = self._target.tokenizer_fingerprint
        write_responses(self._path, self._memory.responses.values(), fingerprint)
        self._num_saved = self._memory.num_added

    def write_at_end_of(self, owner: object) -> None:
        """Write when `owner` is garbage-collected or the interpreter exits, whichever comes first; a failure is logged."""
        weakref.finalize(owner, self._write_quietly)

    def _write_quietly(self) -> None:
        try:
            self.write()
        except OSError as error:
            logger.warning("suffix: %s was not written: %s", self._path, error.strerror)
