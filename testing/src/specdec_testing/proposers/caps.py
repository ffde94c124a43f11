"""Drafts respect the limits of the batch."""

from __future__ import annotations

from specdec_testing.proposers.suite import ProposerSuite
from specdec_testing.support.call_sequence import NUM_PROMPT_TOKENS
from specdec_testing.support.feed import Ask
from specdec_testing.support.rows import Row
from specdec_testing.support.texts import NUM_TEXTS
from specdec_testing.support.verdicts import broken


class CapTests(ProposerSuite):
    """Number of nodes, ids, and edge cases: no draft wanted, no new token, the first and the last token."""

    def test_node_caps_are_kept(self) -> None:
        """No row has more nodes than its `max_nodes`, whatever the cap was in the previous step.

        To fix: truncate every row to `batch.max_nodes[row]` in each call; the cap differs between rows and steps.
        """
        feed = self._feed()
        names = [self._add(feed, index) for index in range(4)]
        feed.call({name: Ask(NUM_PROMPT_TOKENS - 1, 0) for name in names})
        for turn in range(12):
            caps = {
                name: (self._k, 1, 0, max(1, self._k // 2))[(row + turn) % 4]
                for row, name in enumerate(names)
            }
            rows = feed.call({name: Ask(1, cap) for name, cap in caps.items()})
            for name, row in rows.items():
                _check_size(row, caps[name])

    def test_ids_are_in_the_vocabulary(self) -> None:
        """Every drafted id is one of the target's: 0 to vocab_size - 1.

        To fix: mask the ids from `target.vocab_size` on before choosing, and map the ids of a reduced vocabulary back.
        """
        feed = self._feed()
        feed.add("highest", [self._vocab_size - 1, 0] * (NUM_PROMPT_TOKENS // 2 + 2), NUM_PROMPT_TOKENS)
        names = ["highest", *(self._add(feed, index) for index in range(3))]
        feed.call({name: Ask(NUM_PROMPT_TOKENS - 1, 0) for name in names})
        for _ in range(4):
            for row in feed.call({name: Ask(1, self._k) for name in names}).values():
                wrong = [token for token in row.tokens if not 0 <= token < self._vocab_size]
                if wrong:
                    broken(f"id {wrong[0]} was drafted, the vocabulary has {self._vocab_size} ids: {row}")

    def test_no_draft_where_none_is_wanted(self) -> None:
        """A row whose `max_nodes` is 0 gets no node: in the middle of the prompt, and while speculation is off.

        To fix: leave rows with `batch.max_nodes[row] == 0` empty, but still process their new tokens.
        """
        feed = self._feed()
        names = [self._add(feed, index) for index in range(2)]
        for asks in (
            {names[0]: Ask(24, 0, num_ahead=16), names[1]: Ask(40, 0)},
            dict.fromkeys(names, Ask(2, 0)),
        ):
            for row in feed.call(asks).values():
                if row.tokens:
                    broken(f"max_nodes is 0 and {row} was drafted")
        wanted = feed.call({names[0]: Ask(1, self._k), names[1]: Ask(1, 0)})
        if wanted[names[1]].tokens:
            broken(f"max_nodes is 0 for one row of two, and {wanted[names[1]]} was drafted for it")

    def test_a_call_without_new_tokens(self) -> None:
        """A call without new tokens gives the same draft as the previous call, because the text has not changed.

        To fix: support `counts[row] == 0`, for all rows at once and in a request's first call too; draft from the held tokens.
        """
        self._require_repeatable()
        feed = self._feed()
        names = [self._add(feed, index) for index in range(NUM_TEXTS)]
        if feed.needs_hidden:
            feed.call(dict.fromkeys(names, Ask(0, 0, num_ahead=NUM_PROMPT_TOKENS)))
        feed.call(dict.fromkeys(names, Ask(NUM_PROMPT_TOKENS - 5, 0)))
        for _ in range(6):
            first = feed.call(dict.fromkeys(names, Ask(4, self._k)))
            again = feed.call(dict.fromkeys(names, Ask(0, self._k)))
            for name in names:
                if again[name] != first[name]:
                    broken(f"{first[name]} was drafted, then without any new token {again[name]}")

    def test_a_context_of_one_token(self) -> None:
        """Drafting works for a request whose whole text is one token.

        To fix: look back no further than the start of the text; an empty draft is fine.
        """
        feed = self._feed()
        for text in self._texts[:NUM_TEXTS]:
            row = self._single(feed, text[:1], self._k)
            _check_size(row, self._k)

    def test_the_end_of_the_context_window(self) -> None:
        """Up to the last token of the context window nothing is raised, and no draft exceeds the window.

        To fix: respect the caps, which shrink to 0 as the window fills, and make buffers `max_model_len` long: the last
        token is delivered too, and none after it.
        """
        length = self._target.max_len
        text = (self._texts[0] * length)[:length]
        feed = self._feed()
        feed.add("long", text, NUM_PROMPT_TOKENS)
        start = length - min(self._k, 12) - 4
        feed.call({"long": Ask(start, 0)})
        for end in range(start + 1, length + 1):
            cap = max(0, min(self._k, length - end - 1))
            _check_size(feed.call({"long": Ask(1, cap)})["long"], cap, f" ({end} of {length} tokens)")


def _check_size(row: Row, cap: int, place: str = "") -> None:
    if len(row.tokens) > cap:
        broken(f"max_nodes is {cap}{place} and {len(row.tokens)} nodes were drafted: {row}")
