"""A backend in the engine."""

from __future__ import annotations

from typing import ClassVar

from specdec.interfaces import Draft, ProposeBatch, Proposer
from specdec_testing.backends.suite import BackendSuite, used_by_core
from specdec_testing.support.generation import generate
from specdec_testing.support.repeats import repeats
from specdec_testing.support.subjects import path_of
from specdec_testing.support.target import check_target
from specdec_testing.support.texts import texts_for
from specdec_testing.support.verdicts import broken, described

_NUM_PROMPT_TOKENS = 40


class EngineTests(BackendSuite):
    """The text is that of core alone."""

    def test_the_text_is_that_of_core_alone(self) -> None:
        """Texts, greedy and at temperature 0.8, plain and with drafts, are token for token those of `SPECDEC_BACKENDS=`.

        To fix: mend the other promises first; this one adds prompts in chunks, preemption and requests that join.
        """
        target = check_target(self.model)
        prompts = [text[:_NUM_PROMPT_TOKENS] for text in texts_for(target.loaded, [], is_zoo=False)]
        for config in (None, {"method": path_of(_Repeats), "num_speculative_tokens": 4}):
            for temperature in (0.0, 0.8):
                texts = []
                for names in ("", self._name):
                    try:
                        with used_by_core(names):
                            texts.append(generate(target, config, prompts, temperature))
                    except Exception as error:
                        broken(f"the engine raised {described(error)}")
                for row, (expected, got) in enumerate(zip(*texts, strict=True)):
                    if got != expected:
                        same = next(n for n, (a, b) in enumerate(zip(expected, got, strict=True)) if a != b)
                        what = f"{'with drafts' if config else 'plain'}, temperature {temperature}"
                        broken(
                            f"{what}, prompt {row}: token {same} is {got[same]}, core alone gives {expected[same]}"
                        )


class _Repeats(Proposer):
    """Drafts what followed the newest token when it last occurred."""

    name: ClassVar[str] = "repeats"
    api_version: ClassVar[int] = 1

    def propose(self, batch: ProposeBatch) -> Draft:
        """Deliver new tokens to the proposer and return its draft."""
        return repeats(batch)
