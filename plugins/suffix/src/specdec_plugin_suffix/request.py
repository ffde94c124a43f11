"""What is kept of a running request beside its tree."""

from __future__ import annotations

from array import array


class Request:
    """One running request.

    Args:
        depth: tokens of context that a match can use.
        text: what is delivered already; it waits to be put into the tree.
        response: the part of it after the prompt.
    """

    __slots__ = ("depth", "num_tokens", "response", "tail", "waiting")

    def __init__(self, depth: int, text: list[int], response: array[int]) -> None:
        self.depth = depth
        self.num_tokens = len(text)
        """Tokens delivered."""
        self.tail = text[-depth:]
        """The last `depth` of them."""
        self.waiting = text
        """Those that are not in the tree yet."""
        self.response = response
        """Those after the prompt, which others may learn from at the end."""

    def append(self, token_ids: list[int], num_prompt_tokens: int) -> None:
        """Take in new tokens; the caller puts them into the tree or lets them wait."""
        num_left = num_prompt_tokens - self.num_tokens
        self.response.extend(token_ids if num_left <= 0 else token_ids[num_left:])
        self.num_tokens += len(token_ids)
        self.tail = (self.tail + token_ids)[-self.depth :]
