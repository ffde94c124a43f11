"""Grammar state of one sample."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from operator import index as as_int
from typing import TYPE_CHECKING

import numpy as np
import torch

from specdec import ConfigError
from specdec.interfaces import GrammarState
from specdec_grammar.spellings import Spellings

logger = logging.getLogger("specdec")

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from specdec_grammar.vocabulary import Vocabulary

_BITS = 32
_FEW = 32
"""The part of all ids that are allowed at most at places where the target's choices are counted."""
_SPELLED = 0.5
"""How likely the tokenizer's spelling is while the target's own is not known."""


class MatcherState(GrammarState):
    """The state of one sample on a matcher of llguidance.

    Args:
        matcher: a matcher at the start of the grammar.
        vocab_size: V.
        end_ids: the tokens that end a text.
        compile_again: returns another matcher at the start of the grammar.
        vocabulary: spells forced texts; None to draft only ids that are alone.
        spellings: what the target chose where other texts had the same places; None without a vocabulary.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        vocab_size: int,
        end_ids: frozenset[int],
        compile_again: Callable[[], LLMatcher],
        vocabulary: Vocabulary | None = None,
        spellings: Spellings | None = None,
    ) -> None:
        self._vocabulary, self._spellings = vocabulary, spellings
        self._last = -1
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
        again, vocabulary = self._compile_again, self._vocabulary
        return MatcherState(again(), self._vocab_size, self._end_ids, again, vocabulary, self._spellings)

    @property
    def is_terminated(self) -> bool:
        """Whether the text is complete and its end-of-text token is committed."""
        return self._is_ended

    def advance(self, token_ids: Sequence[int]) -> None:
        """Advance by committed tokens; tokens after a complete text are ignored.

        A token that violates the grammar, which only a lossy sampler can emit, ends the constraint for the rest of the text.
        """
        masks, self._masks = self._masks, None
        for place, token_id in enumerate(token_ids):
            if self._is_ended or self._is_left:
                break
            if (
                masks is not None
                and token_id not in self._end_ids
                and self._nodes[:place] == (*token_ids[:place],)
            ):
                self._learn(token_id, masks[place])
            if token_id in self._end_ids and self._matcher.is_accepting():
                self._is_ended = True
            elif not self._takes(token_id):
                if self._matcher.is_error():  # which the next mask raises
                    break
                logger.warning(
                    "the sampler emitted a token that the grammar forbids; the text goes on without grammar"
                )
                self._is_left = True
            self._last = token_id

    def allowed_nodes(self, nodes: Sequence[int], parents: Sequence[int] | None) -> list[bool]:
        """Return for each drafted node whether the grammar allows it and all its ancestors.

        Raises:
            ConfigError: if the grammar needs too much work for this text.
        """
        self._walk(nodes, parents)
        return self._is_allowed[: len(nodes)]

    def mask(self, logits: torch.Tensor, nodes: Sequence[int], parents: Sequence[int] | None) -> None:
        """Set forbidden ids of rows `[len(nodes) + 1, V]` to -inf.

        Rows after a node that is forbidden, or that completes the text, are not changed: nothing from them is kept.

        Raises:
            ConfigError: if the grammar needs too much work for this text.
        """
        self._walk(nodes, parents)
        assert self._masks is not None
        logits.masked_fill_(unpacked(~self._masks[: len(nodes) + 1], logits), -torch.inf)

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

    def forced(self, most: int, least_chance: float = 0.0) -> list[int]:
        """Return at most `most` tokens that come next whatever the text, or that usually do: the only id that is allowed; the
        usual spelling of the only text that is; and where few ids are allowed, what the target chose there before.

        Args:
            most: most tokens.
            least_chance: tokens are left out from the first on that is less likely to be reached and chosen.
        """
        taken: list[int] = []
        chance = 1.0
        try:
            while len(taken) < most and not self._is_left and not self._is_ended:
                ids, likely = self._expected_here(taken[-1] if taken else self._last)
                chance *= likely
                if not ids or chance < least_chance:
                    break
                if ids[0] in self._end_ids:
                    return [*taken, ids[0]]
                count = self._matcher.try_consume_tokens(ids[: most - len(taken)])
                if not count:
                    break
                taken += ids[:count]
            return taken
        finally:
            if taken:
                self._matcher.rollback(len(taken))

    def _expected_here(self, last: int) -> tuple[list[int], float]:
        """Return what is expected after the token `last`, and how likely it is."""
        text = self._matcher.compute_ff_bytes()
        spelled: list[int] = []
        if text and self._spellings is not None and self._vocabulary is not None:
            usual = self._spellings.after(text, self._allows)
            if usual is not None:
                return [usual[0]], usual[1]
            spelled = [*self._vocabulary.spell(text)]
            if len(spelled) > 1:
                return spelled[:1], _SPELLED
        mask = self._mask_here()
        allowed = _as_number(mask)
        if allowed.bit_count() == 1:
            return [allowed.bit_length() - 1], 1.0
        if spelled and self._is_last(spelled[0]):
            return spelled, _SPELLED
        if not text and self._spellings is not None and self._is_narrow(allowed):
            usual = self._spellings.after(_place(last, mask), lambda token_id: bool(allowed >> token_id & 1))
            return ([], 0.0) if usual is None else ([usual[0]], usual[1])
        return [], 0.0

    def _learn(self, token_id: int, mask: torch.Tensor) -> None:
        """Learn a token that is committed next, where the mask leaves few ids."""
        if self._spellings is None:
            return
        text = self._matcher.compute_ff_bytes()
        if text:
            self._spellings.learn(text, token_id)
        elif self._is_narrow(_as_number(mask)):
            self._spellings.learn(_place(self._last, mask), token_id)

    def _allows(self, token_id: int) -> bool:
        return self._matcher.validate_tokens([token_id]) == 1

    def _is_narrow(self, allowed: int) -> bool:
        return allowed.bit_count() * _FEW <= self._vocab_size

    def _is_last(self, token_id: int) -> bool:
        """Return whether a text is complete with this token, so that only its end can follow."""
        if not self._takes(token_id):
            return False
        is_last = False
        if self._matcher.is_accepting():
            allowed = _as_number(self._mask_here())
            is_last = allowed.bit_count() == 1 and allowed.bit_length() - 1 in self._end_ids
        self._matcher.rollback(1)
        return is_last

    def _mask_here(self) -> torch.Tensor:
        """Return the bitmask of ids allowed now."""
        masks = self._blank(1)
        self._compute(masks, 0)
        return masks[0]

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
    octets = bitmask.view(torch.uint8)
    if like.device.type == "cpu":
        bits = np.unpackbits(octets.numpy(), axis=1, count=like.shape[-1], bitorder="little")
        return torch.from_numpy(bits.view(np.bool_))
    shifts = torch.arange(8, dtype=torch.uint8, device=like.device)
    unpacked_bits = (octets.to(like.device)[..., None] >> shifts) & 1
    return unpacked_bits.flatten(-2)[..., : like.shape[-1]].bool()


def _place(last: int, mask: torch.Tensor) -> tuple[int, int]:
    return last, hash(mask.numpy().tobytes())


def _as_number(mask: torch.Tensor) -> int:
    return int.from_bytes(mask.numpy().tobytes(), "little")
