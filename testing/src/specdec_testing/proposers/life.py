"""Requests join, leave and return without affecting each other."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.interfaces import FinishReason
from specdec_testing.proposers.suite import ProposerSuite
from specdec_testing.support.call_sequence import CallSequence, call_sequence, play
from specdec_testing.support.feed import Ask, Feed
from specdec_testing.support.reachable import reachable_bytes
from specdec_testing.support.rows import Row
from specdec_testing.support.verdicts import broken

ENDS = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT, FinishReason.ERROR)


class LifeTests(ProposerSuite):
    """Independence of rows, rows that join and leave, and dropped state."""

    def test_rows_do_not_depend_on_each_other(self) -> None:
        """The drafts of a request are the same alone and in any batch, in any order of rows.

        To fix: key state by request id and index rows with `request_ids`; learn from a request only after it has finished,
        because it may still be aborted. Draw with `batch.draws`, which depends only on the request.
        """
        self._require_repeatable()
        for is_reversed in (False, True):
            feed = self._feed()
            names = [self._add(feed, index) for index in range(4)]
            drafted = play(feed, dict.fromkeys(names, call_sequence(self._k)), is_reversed=is_reversed)
            for index, name in enumerate(names):
                where = "in a batch of 4" + ", its rows turned round now and then" * is_reversed
                _compare(drafted[name], self._alone(index), where)

    def test_rows_join_and_leave(self) -> None:
        """A request's drafts do not change when other requests join, end, or miss some calls.

        To fix: do not key state by batch position, and drop only the state of the requests that `finish` names.
        """
        self._require_repeatable()
        whole = call_sequence(self._k)
        paused = [*whole[:4], None, None, *whole[4:]]
        feed = self._feed()
        names = [self._add(feed, index) for index in range(4)]
        sequences_of_calls: dict[str, CallSequence] = {
            names[0]: [*whole[:5], FinishReason.ABORT],
            names[1]: paused,
            names[2]: [None, None, None, *whole],
            names[3]: [*[None] * 6, *whole],
        }
        drafted = play(feed, sequences_of_calls)
        for index, name in enumerate(names):
            asked = [row for row in drafted[name] if row is not None]
            _compare(asked, self._alone(index)[: len(asked)], "while others join and leave")

    def test_a_finished_request_is_forgotten(self) -> None:
        """A new request that reuses the id of an ended one, whatever the finish reason, behaves like one with a new id.

        To fix: drop everything held for an id in `finish`; after `FinishReason.ERROR` all tokens are delivered again from 0.
        """
        self._require_repeatable()
        for reason in ENDS:
            drafts = []
            for name in ("earlier", "never seen"):
                feed = self._feed()
                feed.add("earlier", self._texts[0], 40)
                for ask in call_sequence(self._k)[:6]:
                    feed.call({"earlier": ask})
                feed.finish(["earlier"], reason)
                drafts.append(self._later(feed, self._texts[1], name))
            for same, other in zip(*drafts, strict=True):
                if same != other:
                    broken(
                        f"after {reason.name}: {same} for a new request under the same id, {other} under another"
                    )

    def test_finishing_unknown_requests_is_harmless(self) -> None:
        """`finish` may name requests that were never seen or are already dropped, for example after an error.

        To fix: drop state with `.pop(request_id, None)` and the like.
        """
        feed = self._feed()
        for reason in ENDS:
            feed.finish(["never seen"], reason)
        name = self._add(feed, 0)
        feed.call({name: call_sequence(self._k)[0]})
        for _ in range(2):
            feed.finish([name], FinishReason.ERROR)
        feed.finish([], FinishReason.STOP)

    def test_aborted_requests_teach_nothing(self) -> None:
        """An aborted request does not change the drafts of other requests.

        To fix: learn from a request in `finish`, and only with `FinishReason.STOP` or `LENGTH`.
        """
        self._require_repeatable()
        text = self._texts[0]
        for asks in (call_sequence(self._k), call_sequence(self._k)[:3]):
            drafts: list[list[Row]] = []
            for has_aborted in (True, False):
                feed = self._untaught()
                self._add(feed, 2, "beside")
                if has_aborted:
                    feed.add("aborted", text, 40)
                for ask in asks:
                    feed.call({"aborted": ask, "beside": ask} if has_aborted else {"beside": ask})
                if has_aborted:
                    feed.finish(["aborted"], FinishReason.ABORT)
                drafts.append([feed.call({"beside": Ask(1, self._k)})["beside"], *self._later(feed, text)])
            if drafts[0] != drafts[1]:
                broken("drafts for later requests differ after another one with a similar text was aborted")

    def test_aborted_requests_leave_nothing_behind(self) -> None:
        """A proposer's memory does not grow with requests that were aborted or failed.

        To fix: remove the request's entry from every dict, list and cache in `finish`. Memory of native code is not measured.
        """
        feed = self._feed()
        sizes = [self._size_after(feed, range(12 * block, 12 * block + 12)) for block in range(4)]
        growth = sizes[3] - sizes[1]
        if sizes[1] < sizes[2] < sizes[3] and growth >= 24 * 8:
            broken(f"{growth // 24} bytes stay behind for each request that was aborted")

    def _size_after(self, feed: Feed, numbers: Sequence[int]) -> int:
        """Run and abort requests, two at a time; return how many bytes the proposer holds afterwards."""
        for first in numbers[::2]:
            names = [f"passing-{first}", f"passing-{first + 1}"]
            for name in names:
                feed.add(name, self._texts[0], 40)
            for ask in call_sequence(self._k)[:3]:
                feed.call(dict.fromkeys(names, ask))
            feed.finish(names, (FinishReason.ABORT, FinishReason.ERROR)[first // 2 % 2])
        return reachable_bytes(feed.proposer)

    def _later(self, feed: Feed, text: list[int], name: str = "later") -> list[Row]:
        """Return the drafts for a later request at several positions of a text."""
        feed.add(name, text, 8)
        return [feed.call({name: Ask(6, self._k)})[name] for _ in range(10)]


def _compare(rows: Sequence[Row | None], expected: Sequence[Row | None], where: str) -> None:
    for turn, (row, alone) in enumerate(zip(rows, expected, strict=True)):
        if row != alone:
            broken(f"call {turn}: {alone} was drafted alone, {row} {where}")
