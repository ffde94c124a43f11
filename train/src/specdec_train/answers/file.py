"""The answers file: one JSON object per line, appended per finished answer, so a killed run loses none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from specdec_train.answers.record import Answered


def read_answers(path: Path) -> list[Answered]:
    """Return the answers in a file: `{"ids": [...], "n": prompt tokens, "t": temperature}` a line.

    A last line without a newline was left by a killed run and is skipped.

    Raises:
        ValueError: if the file or a line cannot be read; the message names it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    return [_answered(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def _answered(line: bytes, place: str) -> Answered:
    try:
        record: Any = json.loads(line)
        ids, count = record["ids"], record["n"]
        if not (0 < count <= len(ids) and all(isinstance(i, int) and i >= 0 for i in ids)):
            raise ValueError("the numbers do not fit")
        return Answered(
            ids,
            count,
            float(record.get("t", 0.0)),
            str(record.get("p", "")),
            bool(record.get("w", False)),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(
            f'{place}: needs {{"ids": [token ids], "n": number of prompt tokens, "t": temperature}}'
        ) from None


class AnswersFile:
    """Appends to a file of answers; use as a context manager.

    Args:
        path: the file; created if missing, and an unfinished last line is removed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab+")
            self._file.seek(0)
            content = self._file.read()
            self._file.truncate(content.rfind(b"\n") + 1)
        except OSError as error:
            raise ValueError(f"{path} cannot be written: {error.strerror}") from None

    def append(self, answers: Sequence[Answered]) -> None:
        """Write answers and flush them to the operating system.

        Raises:
            ValueError: if they cannot be written, for example on a full disk; earlier answers are kept.
        """
        lines = b"".join(_line(answered) for answered in answers)
        try:
            self._file.write(lines)
            self._file.flush()
        except OSError as error:
            raise ValueError(
                f"{self._path} cannot be written ({error.strerror}): make room and go on with --resume"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()
        except OSError:
            if error is None:
                raise


def _line(answered: Answered) -> bytes:
    record: dict[str, Any] = {
        "ids": list(answered.ids),
        "n": answered.num_prompt,
        "t": answered.temperature,
        "p": answered.source,
    }
    if answered.is_written:
        record["w"] = True
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
