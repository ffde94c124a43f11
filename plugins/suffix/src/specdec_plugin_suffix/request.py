"""What is kept of a running request beside its tree."""

from __future__ import annotations

from array import array

PROMPT_TOKENS = 12
"""How many tokens of a prompt's end are remembered before its response.

The same question asked again is then recognised before its answer has begun. It is half of a tree's default depth: longer
matches would leave less of it to the draft.
"""


class Request:
    """One running request.

    Args:
        depth: tokens of context that a match can use.
        text: what is delivered already; it waits to be put into the tree.
        num_prompt_tokens: length of its prompt.
    """

    __slots__ = ("_lesson", "_num_before", "depth", "num_prompt_tokens", "num_tokens", "tail", "waiting")

    def __init__(self, depth: int, text: list[int], num_prompt_tokens: int) -> None:
        self.depth = depth
        self.num_prompt_tokens = num_prompt_tokens
        self.num_tokens = len(text)
        """Tokens delivered."""
        self.tail = text[-depth:]
        """The last `depth` of them."""
        self.waiting = text
        """Those that are not in the tree yet."""
        self._num_before = max(0, num_prompt_tokens - PROMPT_TOKENS)
        self._lesson = array("i", text[self._num_before :])

    @property
    def lesson(self) -> array[int] | None:
        """What others may learn from at the end: its response, after the end of its prompt; None without a response."""
        return self._lesson if self.num_tokens > self.num_prompt_tokens else None

    def append(self, token_ids: list[int]) -> None:
        """Take in new tokens; the caller puts them into the tree or lets them wait."""
        num_left = self._num_before - self.num_tokens
        self._lesson.extend(token_ids if num_left <= 0 else token_ids[num_left:])
        self.num_tokens += len(token_ids)
        self.tail = (self.tail + token_ids)[-self.depth :]
