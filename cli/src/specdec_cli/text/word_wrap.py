"""Breaks streamed text between words where a terminal would break inside one."""

from __future__ import annotations

from rich.cells import cell_len


class WordWrap:
    """Adds line breaks to pieces of text; a word that is not complete yet is held back.

    Args:
        width: columns of the terminal.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._column = 0
        self._word: list[tuple[str, bool]] = []
        """The pieces of the word that is held back, each with its mark."""

    def add(self, text: str, mark: bool) -> list[tuple[str, bool]]:
        """Return the text that can be shown, in pieces of one mark each.

        Args:
            text: the next piece; joined, all pieces give the text.
            mark: comes back with every part of the piece.
        """
        shown: list[tuple[str, bool]] = []
        for char in text:
            if not char.isspace():
                self._word.append((char, mark))
                continue
            shown += self.flush()
            self._column = 0 if char == "\n" else self._column + 1
            shown.append((char, mark))
        return shown

    def flush(self) -> list[tuple[str, bool]]:
        """Return the word that is held back."""
        word, self._word = self._word, []
        length = sum(cell_len(char) for char, _ in word)
        if self._column > 0 and self._column + length > self._width >= length:
            word.insert(0, ("\n", False))
            self._column = 0
        self._column = (
            (self._column + length) % max(self._width, 1) if length > self._width else self._column + length
        )
        return word
