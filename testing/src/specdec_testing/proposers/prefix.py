"""Requests that begin with a cached prefix."""

from __future__ import annotations

from specdec.interfaces import FinishReason
from specdec_testing.proposers.suite import ProposerSuite
from specdec_testing.support.call_sequence import NUM_PROMPT_TOKENS, call_sequence
from specdec_testing.support.feed import Ask
from specdec_testing.support.rows import Row
from specdec_testing.support.verdicts import broken

_NUM_CACHED, _NUM_SHARED = 32, 36
"""Length of the cached prefix, and of the prefix that an earlier text shares with the later one."""


class PrefixTests(ProposerSuite):
    """`resume`: state held for a prefix belongs to exactly that prefix."""

    def test_what_is_held_of_a_prefix_is_as_good_as_told(self) -> None:
        """A request that continues after the prefix reported by `resume` drafts as if all its tokens had been delivered.

        To fix: return for how many of the first tokens you hold rows or states of exactly these tokens, and 0 if you are not
        sure; do not overwrite rows that `resume` may still report, and forget those that were overwritten.
        """
        self._require_repeatable()
        told, resumed = (self._drafts_behind(is_resumed=is_resumed) for is_resumed in (False, True))
        for turn, (expected, row) in enumerate(zip(told, resumed, strict=True)):
            if row != expected:
                broken(
                    f"call {turn} after resume of {_NUM_CACHED} tokens: {row} was drafted, for the same text told whole "
                    f"{expected}"
                )

    def _drafts_behind(self, *, is_resumed: bool) -> list[Row]:
        """Return the drafts for a request after others with a shared prefix: one still running, and one aborted."""
        text, other = self._texts[:2]
        feed = self._feed()
        feed.add("left", [*text[:_NUM_SHARED], *other[_NUM_SHARED:]], NUM_PROMPT_TOKENS)
        feed.add("runs", [*text[: _NUM_CACHED // 2], *other[_NUM_CACHED // 2 :]], NUM_PROMPT_TOKENS)
        for ask in call_sequence(self._k):
            feed.call({"left": ask, "runs": ask})
        feed.finish(["left"], FinishReason.ABORT)
        feed.add("later", text, NUM_PROMPT_TOKENS)
        held = feed.resume("later", _NUM_CACHED) if is_resumed else 0
        told = Ask(NUM_PROMPT_TOKENS - held, 0)
        feed.call({"later": told, "runs": Ask(1, self._k)})
        return [feed.call({"later": Ask(1, self._k)})["later"] for _ in range(6)]
