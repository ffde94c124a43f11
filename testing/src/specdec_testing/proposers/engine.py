"""In the engine the text equals that of plain decoding."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from specdec_testing.proposers.suite import ProposerSuite
from specdec_testing.support.call_sequence import NUM_PROMPT_TOKENS, call_sequence, play
from specdec_testing.support.feed import Feed
from specdec_testing.support.generation import generate, plain
from specdec_testing.support.verdicts import broken, described

NUM_PROMPTS = 5


class EngineTests(ProposerSuite):
    """Runs with chunked prefill, requests that join and finish, and preemption, under `strict`; errors are raised."""

    def test_greedy_text_is_that_of_plain_decoding(self) -> None:
        """At temperature 0 the engine emits the same tokens with and without this proposer, and nothing is raised.

        To fix: under `strict` no draft can change the text, so the cause is an error in `propose`, or a draft that the
        engine rejects as invalid; the tests above show which.
        """
        self._compare_texts(0.0)

    def test_sampled_text_is_that_of_plain_decoding(self) -> None:
        """At temperature 0.8 and equal seeds the engine emits the same tokens with and without this proposer.

        To fix: as for greedy text.
        """
        self._compare_texts(0.8)

    def test_cost(self, record_property: Callable[[str, object], None]) -> None:
        """The cost of a draft is measured and shown; it cannot fail.

        To fix: nothing. The engine's budget is four times the target's pass, or 50 ms.
        """
        for size in (1, 4):
            feed = self._feed()
            names = [self._add(feed, index % len(self._texts), f"cost-{index}") for index in range(size)]
            play(feed, dict.fromkeys(names, call_sequence(self._k)))
            record_property(f"microseconds_per_draft_at_batch_{size}", round(_microseconds(feed), 1))

    def _compare_texts(self, temperature: float) -> None:
        texts = self._texts
        lengths = (NUM_PROMPT_TOKENS, 7, 33, 2, 25)
        prompts = tuple(tuple(texts[i % len(texts)][: lengths[i]]) for i in range(NUM_PROMPTS))
        expected = plain(self._target, prompts, temperature)
        try:
            tokens = generate(
                self._target,
                self._checked.strict_config,
                prompts,
                temperature,
                num_rounds=2 if self._learns_from_finished_only else 1,
            )
        except Exception as error:
            broken(f"the engine raised {described(error)}")
        for index, (got, want) in enumerate(zip(tokens, expected, strict=True)):
            if got != want:
                at = next(i for i, pair in enumerate(zip(got, want, strict=False)) if pair[0] != pair[1])
                broken(f"prompt {index}: token {at} is {got[at]}, without speculation {want[at]}")


def _microseconds(feed: Feed) -> float:
    return 1e6 * median(seconds / drafts for seconds, drafts in feed.seconds if drafts)
