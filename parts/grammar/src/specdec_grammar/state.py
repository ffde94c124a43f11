"""Grammar state of one sample."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from operator import index as as_int
from typing import TYPE_CHECKING

import torch

from specdec import ConfigError
from specdec.interfaces import GrammarState

logger = logging.getLogger("specdec")

if TYPE_CHECKING:
    from llguidance import LLMatcher

_BITS = 32


class MatcherState(GrammarState):
    """The state of one sample on a matcher of llguidance.

    Args:
        matcher: a matcher at the start of the grammar.
        vocab_size: V.
        end_ids: the tokens that end a text.
        compile_again: returns another matcher at the start of the grammar.
        spell: returns the ids that spell a text; None to force no tokens.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        vocab_size: int,
        end_ids: frozenset[int],
        compile_again: Callable[[], LLMatcher],
        spell: Callable[[bytes], list[int]] | None = None,
    ) -> None:
        self._spell = spell
        self._matcher = matcher
        self._compile_again = compile_again
        self._vocab_size = vocab_size
        self._end_ids = end_ids
        self._nodes: tuple[int, ...] = ()
        self._masks: torch.Tensor | None = None
        self._is_ended = False
        self._is_left = False
        self._is_allowed: list[bool] = []

    def begin(self) -> MatcherState:
        """Return the state of another text that has not begun. Copies of a matcher would share an error; this has none."""
        return MatcherState(
            self._compile_again(), self._vocab_size, self._end_ids, self._compile_again, self._spell
        )

    @property
    def is_terminated(self) -> bool:
        """Whether the text is complete and its end-of-text token is committed."""
        return self._is_ended

    def advance(self, token_ids: Sequence[int]) -> None:
        """Advance by committed tokens; tokens after a complete text are ignored.

        A token that violates the grammar, which only a lossy sampler can emit, ends the constraint for the rest of the text.
        """
        self._masks = None
        for token_id in token_ids:
            if self._is_ended or self._is_left:
                break
            if token_id in self._end_ids and self._matcher.is_accepting():
                self._is_ended = True
            elif not self._takes(token_id):
                if self._matcher.is_error():  # which the next mask raises
                    break
                logger.warning(
                    "the sampler emitted a token that the grammar forbids; the text goes on without grammar"
                )
                self._is_left = True

    def allowed_nodes(self, nodes: Sequence[int], parents: Sequence[int] | None) -> list[bool]:
        """Return for each drafted node whether the grammar allows it and all its ancestors.

        Raises:
            ConfigError: if the grammar needs too much work for this text.
        """
        self._walk(nodes, parents)
        return self._is_allowed[: len(nodes)]

    def mask(self, logits: torch.Tensor, nodes: Sequence[int], parents: Sequence[int] | None) -> torch.Tensor:
        """Return rows `[len(nodes) + 1, V]` with forbidden ids at -inf.

        Rows after a node that is forbidden, or that completes the text, are not changed: nothing from them is kept.

        Raises:
            ConfigError: if the grammar needs too much work for this text.
        """
        self._walk(nodes, parents)
        assert self._masks is not None
        return logits.masked_fill(~unpacked(self._masks[: len(nodes) + 1], logits), -torch.inf)

    def mask_after(self, path: Sequence[int]) -> torch.Tensor:
        """Return the bitmask `[ceil(V / 32)]` int32 of ids allowed after drafting `path`; empty after a path that is not
        allowed or that completes the text."""
        steps = [*map(as_int, path)]  # exact ints, before anything moves
        taken = 0
        bitmask = torch.zeros_like(self._blank(1))
        try:
            while taken < len(steps) and not self._is_ended and self._takes(steps[taken]):
                taken += 1
            if self._is_left:
                bitmask = self._blank(1)
            elif taken == len(steps) and not self._is_ended:
                self._compute(bitmask, 0)
        finally:
            if taken:
                self._matcher.rollback(taken)
        return bitmask[0]

    def forced(self, most: int) -> list[int]:
        """Return at most `most` tokens that come next whatever the text: the only id that is allowed, or the usual spelling
        of the only text that is. The last token of a spelling is left out where it may be longer in the whole text."""
        taken: list[int] = []
        try:
            while len(taken) < most and not self._is_left and not self._is_ended:
                ids = self._forced_here()
                if ids and ids[0] in self._end_ids:
                    return [*taken, ids[0]]
                count = self._matcher.try_consume_tokens(ids[: most - len(taken)])
                if not count:
                    break
                taken += ids[:count]
            return taken
        finally:
            if taken:
                self._matcher.rollback(len(taken))

    def _forced_here(self) -> list[int]:
        text = self._matcher.compute_ff_bytes()
        spelled = [] if self._spell is None or not text else self._spell(text)
        if len(spelled) > 1:
            return spelled[:-1]
        if text or self._matcher.is_accepting():
            only = self._only_allowed()
            if only is not None:
                return [only]
        return spelled if spelled and self._is_last(spelled[0]) else []

    def _is_last(self, token_id: int) -> bool:
        """Return whether a text is complete with this token, so that only its end can follow."""
        if not self._takes(token_id):
            return False
        is_last = self._matcher.is_accepting() and self._only_allowed() in self._end_ids
        self._matcher.rollback(1)
        return is_last

    def _only_allowed(self) -> int | None:
        """Return the id that the mask leaves alone, if it leaves one."""
        masks = self._blank(1)
        self._compute(masks, 0)
        words = masks[0].nonzero()
        if len(words) != 1:
            return None
        word = int(masks[0, words[0]]) & 0xFFFFFFFF
        return int(words[0]) * _BITS + word.bit_length() - 1 if word & (word - 1) == 0 else None

    def _takes(self, token_id: int) -> bool:
        """Move by a token, unless it ends the text or is forbidden."""
        is_text = 0 <= token_id < self._vocab_size and token_id not in self._end_ids
        return is_text and self._matcher.try_consume_tokens([token_id]) == 1

    def _compute(self, masks: torch.Tensor, row: int) -> None:
        self._matcher.unsafe_compute_mask_ptr(masks[row].data_ptr(), masks.shape[1] * masks.element_size())

    def _walk(self, nodes: Sequence[int], parents: Sequence[int] | None) -> None:
        """Fill the masks of all rows, depth first, unless the last walk already covers these nodes."""
        if self._masks is not None and self._nodes[: len(nodes)] == tuple(nodes):
            return
        self._nodes, self._masks = tuple(nodes), None
        masks = self._blank(len(nodes) + 1)
        self._is_allowed = [self._is_left] * len(nodes)
        children: list[list[int]] = [[] for _ in range(len(nodes) + 1)]
        for node in range(len(nodes)):
            children[(node - 1 if parents is None else parents[node]) + 1].append(node)
        if not self._is_left and not self._is_ended:
            self._descend(children, masks)
        self._masks = masks

    def _descend(self, children: list[list[int]], masks: torch.Tensor) -> None:
        open_rows = [self._entered(0, children, masks)]
        while open_rows:
            node = next(open_rows[-1], None)
            if node is None:
                open_rows.pop()
                if open_rows:
                    self._matcher.rollback(1)
            elif self._nodes[node] in self._end_ids:
                self._is_allowed[node] = self._matcher.is_accepting()
            elif self._takes(self._nodes[node]):
                self._is_allowed[node] = True
                open_rows.append(self._entered(node + 1, children, masks))
            else:
                self._check()

    def _entered(self, row: int, children: list[list[int]], masks: torch.Tensor) -> Iterator[int]:
        """Fill the mask of the matcher's current row; return the nodes to try there."""
        self._compute(masks, row)
        self._check()
        return iter(children[row])

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConfigError(
                "structured_outputs: the grammar needs too much work for this text: "
                f"{self._matcher.get_error().splitlines()[0]:.200}: make it simpler"
            )

    def _blank(self, num_rows: int) -> torch.Tensor:
        """Return bitmasks `[num_rows, ceil(V / 32)]` that allow everything."""
        return torch.full((num_rows, -(-self._vocab_size // _BITS)), -1, dtype=torch.int32)


def unpacked(bitmask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a bitmask `[R, ceil(V / 32)]` int32 as booleans `[R, V]` on the device of `like` `[R, V]`."""
    shifts = torch.arange(_BITS, dtype=torch.int32, device=like.device)
    bits = (bitmask.to(like.device)[..., None] >> shifts) & 1
    return bits.flatten(-2)[..., : like.shape[-1]].bool()
