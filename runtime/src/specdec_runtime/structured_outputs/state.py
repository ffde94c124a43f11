"""Grammar state of one sample."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from specdec import ConfigError
from specdec.config import notice
from specdec.interfaces import GrammarState
from specdec_runtime.structured_outputs.spellings import Spellings

logger = logging.getLogger("specdec")

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from specdec_runtime.structured_outputs.vocabulary import Vocabulary

_BITS = 32
_FEW = 32
"""The part of all ids that are allowed at most at places where the target's choices are counted."""
_SPELLED = 0.5
"""How likely the tokenizer's spelling is while the target's own is not known."""
_FORCED = 256
"""Most bytes of a forced text that are looked at; a draft has fewer."""
_FIRST_PAUSE = 16
_LONGER = 4


class MatcherState(GrammarState):
    """The state of one sample on a matcher of llguidance.

    A matcher that comes to a limit stays in error, also where that was ahead of the text, on a draft. Then another one takes
    its place, which sees what plain decoding sees, and nothing is looked at ahead for a number of tokens that grows each time.

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
        self._matcher = matcher
        self._compile_again = compile_again
        self._vocab_size = vocab_size
        self._end_ids = end_ids
        self._nodes: tuple[int, ...] = ()
        self._masks: torch.Tensor | None = None
        self._is_ended = False
        self._is_left = False
        self._is_allowed: list[bool] = []
        self._text: list[int] = []
        """Committed tokens."""
        self._forced = b""
        """What is known of the text that comes next whatever is chosen."""
        self._has_looked = False
        """Whether the matcher was moved ahead of the text."""
        self._pause_end = 0
        """Number of tokens from which on it may be again."""
        self._next_pause = _FIRST_PAUSE

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
            elif not self._takes(token_id) and not (self._renew() and self._takes(token_id)):
                if self._matcher.is_error():  # which the next mask raises
                    break
                logger.warning(
                    "the sampler emitted a token that the grammar forbids; the text goes on without grammar"
                )
                self._is_left = True
            self._text.append(token_id)
            self._forced = self._forced[self._num_bytes([token_id]) :]

    def allowed_nodes(self, nodes: Sequence[int], parents: Sequence[int] | None) -> list[bool]:
        """Return for each drafted node whether the grammar allows it and all its ancestors, as far as it can be followed.

        Raises:
            ConfigError: if the grammar needs too much work for this text.
        """
        self._walk(nodes, parents)
        return self._is_allowed[: len(nodes)]

    def mask(self, logits: torch.Tensor, nodes: Sequence[int], parents: Sequence[int] | None) -> None:
        """Set forbidden ids of rows `[len(nodes) + 1, V]` to -inf.

        Rows after a node that is forbidden, or that completes the text, are not changed: nothing from them is kept. Rows
        after one from which the grammar cannot be followed allow nothing.

        Raises:
            ConfigError: if the grammar needs too much work for this text.
        """
        self._walk(nodes, parents)
        assert self._masks is not None
        logits.masked_fill_(unpacked(~self._masks[: len(nodes) + 1], logits), -torch.inf)

    def mask_after(self, path: Sequence[int]) -> torch.Tensor:
        """Return the bitmask `[ceil(V / 32)]` int32 of ids allowed after drafting `path`; empty after a path that is not
        allowed or that completes the text."""
        bitmask = torch.zeros_like(self._blank(1))
        if self._is_left:
            return self._blank(1)[0]
        if self._is_ended or self._is_paused:
            return bitmask[0]
        self._has_looked, taken = True, 0
        while taken < len(path) and self._takes(path[taken]):
            taken += 1
        if taken == len(path):
            self._compute(bitmask, 0)
        self._matcher.rollback(taken)
        return torch.zeros_like(bitmask[0]) if self._renew() else bitmask[0]

    def forced(self, most: int, least_chance: float = 0.0) -> list[int]:
        """Return at most `most` tokens that come next whatever the text, or that usually do: the only id that is allowed; the
        usual spelling of the only text that is; and where few ids are allowed, what the target chose there before.

        Args:
            most: most tokens.
            least_chance: tokens are left out from the first on that is less likely to be reached and chosen.
        """
        taken: list[int] = []
        if self._is_left or self._is_ended or self._is_paused:
            return taken
        self._has_looked, chance, end = True, 1.0, list[int]()
        try:
            while len(taken) < most and not end:
                ids, likely = self._expected_here(taken)
                chance *= likely
                if not ids or chance < least_chance:
                    break
                if ids[0] in self._end_ids:
                    end = ids[:1]
                    continue
                count = self._matcher.try_consume_tokens(ids[: most - len(taken)])
                if not count:
                    break
                taken += ids[:count]
        finally:
            self._matcher.rollback(len(taken))
        return [] if self._renew() else [*taken, *end]

    def _expected_here(self, taken: list[int]) -> tuple[list[int], float]:
        """Return what is expected after the drafted tokens `taken`, and how likely it is."""
        text = self._forced_text(taken)
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
            last = taken[-1] if taken else self._last
            usual = self._spellings.after(_place(last, mask), lambda token_id: bool(allowed >> token_id & 1))
            return ([], 0.0) if usual is None else ([usual[0]], usual[1])
        return [], 0.0

    def _learn(self, token_id: int, mask: torch.Tensor) -> None:
        """Learn a token that is committed next, where the mask leaves few ids."""
        if self._spellings is None or self._is_paused:
            return
        self._has_looked = True
        text = self._forced_text([])
        if text:
            self._spellings.learn(text, token_id)
        elif self._is_narrow(_as_number(mask)):
            self._spellings.learn(_place(self._last, mask), token_id)
        self._renew()

    def _forced_text(self, taken: list[int]) -> bytes:
        """Return the text that comes after drafted tokens whatever is chosen, as far as a draft may reach.

        A long one, which takes long to find, is found once.
        """
        text = self._forced[self._num_bytes(taken) :]
        if not text:
            text = self._matcher.compute_ff_bytes()
            if not taken and self._vocabulary is not None:
                self._forced = text
        return text[:_FORCED]

    def _num_bytes(self, token_ids: list[int]) -> int:
        vocabulary = self._vocabulary
        return 0 if vocabulary is None else sum(len(vocabulary.tokens[token_id]) for token_id in token_ids)

    @property
    def _last(self) -> int:
        return self._text[-1] if self._text else -1

    @property
    def _is_paused(self) -> bool:
        return len(self._text) < self._pause_end

    def _renew(self) -> bool:
        """After an error that looking ahead may have brought about, go on with another matcher; return whether it was so."""
        if not self._has_looked or not self._matcher.is_error():
            return False
        notice(
            "structured_outputs:ahead",
            "a grammar needs too much work along a draft: its request goes on, for some tokens without drafts; texts are not "
            f"affected: {self._reason()}",
        )
        self._pause_end, self._next_pause = len(self._text) + self._next_pause, _LONGER * self._next_pause
        self._matcher, self._has_looked = self._compile_again(), False
        mask = self._blank(1)
        for token_id in self._text:
            self._compute(mask, 0)
            self._matcher.try_consume_tokens([token_id])
        self._compute(mask, 0)
        return True

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
            self._compute(masks, 0)
            if self._renew():
                self._compute(masks, 0)
            self._check()
            if nodes:
                self._descend(children, masks)
        self._masks = masks

    def _descend(self, children: list[list[int]], masks: torch.Tensor) -> None:
        """Fill the masks behind drafted nodes, as far as the matcher follows them."""
        open_rows, followed = [iter(children[0])], {0}
        self._has_looked = self._has_looked or not self._is_paused
        while open_rows and not self._is_paused:
            node = next(open_rows[-1], None)
            if node is None:
                open_rows.pop()
                if open_rows:
                    self._matcher.rollback(1)
            elif self._nodes[node] in self._end_ids:
                self._is_allowed[node] = self._matcher.is_accepting()
            elif self._takes(self._nodes[node]):
                self._is_allowed[node] = True
                self._compute(masks, node + 1)
                if not self._renew():
                    followed.add(node + 1)
                    open_rows.append(iter(children[node + 1]))
            else:
                self._renew()
        if self._is_paused:
            masks[[row for row in range(len(masks)) if row not in followed]] = 0

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConfigError(
                f"structured_outputs: the grammar needs too much work for this text: {self._reason()}: make it simpler"
            )

    def _reason(self) -> str:
        return f"{self._matcher.get_error().splitlines()[0]:.200}"

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
