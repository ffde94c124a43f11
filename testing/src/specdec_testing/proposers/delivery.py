"""Drafts depend on the delivered tokens, not on how they were delivered."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, pairwise

from specdec.interfaces import FinishReason
from specdec_testing.proposers.suite import ProposerSuite
from specdec_testing.support.call_sequence import call_sequence
from specdec_testing.support.feed import Ask, Feed
from specdec_testing.support.rows import Row
from specdec_testing.support.texts import NUM_TEXTS
from specdec_testing.support.verdicts import broken


class DeliveryTests(ProposerSuite):
    """Tokens in pieces, tokens while no draft is wanted, re-delivered tokens, and memory that is only lent."""

    def test_pieces_make_no_difference(self) -> None:
        """The draft after a text is the same whether its tokens were delivered at once, one by one, or in uneven pieces.

        To fix: process `counts[row]` tokens from `new_token_ids` in every call, in order; any number is possible.
        """
        self._require_repeatable()
        feed = self._feed()
        for index in range(NUM_TEXTS):
            length = (55, 60)[index % 2]
            text = self._texts[index][:length]
            expected = self._single(feed, text, self._k)
            for pieces in ((1,) * length, (7, 23, 1, length - 31), (39, 5, 5, length - 50, 1)):
                row = self._last(feed, text, [Ask(count, self._k) for count in pieces])
                _compare(row, expected, f"tokens that came in pieces of {pieces[0]} to {max(pieces)}")

    def test_tokens_are_taken_in_while_no_draft_is_wanted(self) -> None:
        """Tokens delivered while `max_nodes` is 0 are processed like all others.

        To fix: process the new tokens of every row before looking at `max_nodes`; they are not delivered again.
        """
        self._require_repeatable()
        feed = self._feed()
        for text in self._texts[:NUM_TEXTS]:
            drafted = self._last(feed, text, [Ask(39, self._k), *[Ask(1, self._k)] * 16])
            row = self._last(feed, text, [Ask(39, 0), *[Ask(1, 0)] * 15, Ask(1, self._k)])
            _compare(row, drafted, "15 tokens that came while max_nodes was 0")

    def test_a_start_below_what_is_held_means_forget_from_there(self) -> None:
        """After a re-delivery from any earlier position, as after preemption or an error, only the new tokens count from there.

        To fix: drop everything held from `starts[row]` on before processing the new tokens, in every data structure.
        """
        self._require_repeatable()
        feed = self._feed()
        pairs = cycle(pairwise(self._texts[:NUM_TEXTS]))  # each position and length on one of them
        for start in (0, 1, 23, 40, 50, 54):
            for until in (56, 60, start + 3):
                old, other = next(pairs)
                new = old[:56] if until == 56 else [*old[:start], *other[start:until]]
                expected = self._single(feed, new, self._k)
                row = self._again(feed, old[:56], new, start)
                what = f"{len(new) - start} tokens from position {start} on, when 56 had been delivered"
                _compare(row, expected, what)

    def test_inputs_are_not_written_to(self) -> None:
        """A batch is read-only: tokens, counts and hidden states are the engine's own memory.

        To fix: copy what you change: `ids = batch.token_ids(row).copy()`, `states = batch.hidden_states.clone()`.
        """
        feed = self._feed()
        feed.is_watching = True
        names = [self._add(feed, index) for index in range(2)]
        for ask in call_sequence(self._k):
            feed.call(dict.fromkeys(names, ask))
            if feed.written:
                broken(f"propose wrote into ProposeBatch.{feed.written[0]}")

    def test_inputs_are_not_kept(self) -> None:
        """The batch's memory is read only during the call; afterwards the engine may reuse it.

        To fix: keep copies: `.tolist()`, `.copy()`, `.clone()`; a slice of an array is a view, not a copy.
        """
        self._require_repeatable()
        for index in range(NUM_TEXTS):
            feed = self._feed()
            feed.is_scribbling = True
            name = self._add(feed, index)
            rows = [feed.call({name: ask})[name] for ask in call_sequence(self._k)]
            if rows != self._alone(index):
                broken("drafts change when the engine uses the memory of earlier batches for something else")

    def _again(self, feed: Feed, old: Sequence[int], new: list[int], start: int) -> Row:
        """Return the draft after a text of which all from a position on is delivered again, with drafts in between."""
        name = self._new(feed, old)
        for count in (40, 5, 1, 1, len(old) - 47):
            feed.call({name: Ask(count, self._k)})
        feed.requests[name].text = new
        feed.call({name: Ask(len(new) - start - 1, 0, start=start)})
        row = feed.call({name: Ask(1, self._k)})[name]
        feed.finish([name], FinishReason.ABORT)
        return row


def _compare(row: Row, expected: Row, what: str) -> None:
    if row != expected:
        broken(f"after {what}: {row} was drafted, for the same text told at once {expected}")
