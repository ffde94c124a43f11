"""The same seed gives the same drafts."""

from __future__ import annotations

import random

import numpy as np
import torch

from specdec_testing.proposers.suite import ProposerSuite
from specdec_testing.support.call_sequence import call_sequence, play
from specdec_testing.support.verdicts import broken


class DeterminismTests(ProposerSuite):
    """Drafts are a function of texts and seeds."""

    def test_the_same_seed_gives_the_same_drafts(self) -> None:
        """Two proposers with the same inputs draft the same, whatever the state of the process's random generators.

        To fix: draw with `batch.draws.sample`, never with unseeded `random`, `numpy.random` or `torch.rand`; depend on no
        clock and no set order.
        """
        self._require_repeatable()
        runs = []
        states = random.getstate(), np.random.get_state(), torch.get_rng_state()
        try:
            for number in (1, 2):
                random.seed(number)
                np.random.seed(number)
                torch.manual_seed(number)
                feed = self._feed(has_feedback=True)
                names = [self._add(feed, index) for index in range(4)]
                runs.append(play(feed, dict.fromkeys(names, call_sequence(self._k))))
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
            torch.set_rng_state(states[2])
        for name, rows in runs[0].items():
            for turn, (row, other) in enumerate(zip(rows, runs[1][name], strict=True)):
                if row != other:
                    broken(
                        f"call {turn}: {row} was drafted in one run and {other} in another, with the same seed"
                    )
