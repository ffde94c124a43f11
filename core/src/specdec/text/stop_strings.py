"""Finds stop strings in growing text."""

from __future__ import annotations

from functools import lru_cache


class StopStrings:
    """An automaton of Aho and Corasick (1975): each character takes the same time, however many stop strings there are.

    Args:
        stops: the stop strings, none empty.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._next: dict[tuple[int, str], int] = {}
        self._depths = [0]
        self._found: list[str | None] = [None]
        """For each state the longest stop string that ends there."""
        self._fallbacks = [0]
        """For each state that of its longest tail which begins a stop string."""
        children: list[dict[str, int]] = [{}]
        for stop in stops:
            state = 0
            for char in stop:
                if char not in children[state]:
                    self._next[state, char] = children[state][char] = len(children)
                    self._depths.append(self._depths[state] + 1)
                    self._found.append(None)
                    self._fallbacks.append(0)
                    children.append({})
                state = children[state][char]
            self._found[state] = stop
        level = list(children[0].values())
        while level:
            for state in level:
                for char, child in children[state].items():
                    self._fallbacks[child] = tail = self._step(self._fallbacks[state], char)
                    self._found[child] = self._found[child] or self._found[tail]
            level = [child for state in level for child in children[state].values()]

    def scan(self, state: int, text: str) -> tuple[int, tuple[int, str] | None]:
        """Read more text.

        Args:
            state: what was returned for the text before; 0 at the start.
            text: what follows.

        Returns:
            The state after the text, and the stop string that begins first among those that end within the text: its start,
            counted from that of `text`, and the string. Of two with the same start it is the shorter one.
        """
        first: tuple[int, str] | None = None
        for end, char in enumerate(text, 1):
            state = self._step(state, char)
            stop = self._found[state]
            if stop is not None and (first is None or end - len(stop) < first[0]):
                first = (end - len(stop), stop)
        return state, first

    def num_held_back(self, state: int) -> int:
        """Return the length of the longest tail of the text read that begins a stop string."""
        return self._depths[state]

    def _step(self, state: int, char: str) -> int:
        while (state, char) not in self._next:
            if not state:
                return 0
            state = self._fallbacks[state]
        return self._next[state, char]


@lru_cache(16)
def stop_strings(stops: tuple[str, ...]) -> StopStrings:
    """Return the automaton of stop strings; the samples of a request share it."""
    return StopStrings(stops)
