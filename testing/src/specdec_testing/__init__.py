"""The conformance kit: test suites that a plugin must pass. Plugin authors subclass them.

One class in a test file is enough; pytest needs no conftest and no fixture:

    from specdec_testing import ProposerConformance

    class TestMine(ProposerConformance):
        method = "my_idea"
        config = {"num_speculative_tokens": 4}

Each test checks one promise. Its docstring states the promise and, after "To fix:", what to change if it is broken.
`specdec check my_idea` runs the same tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec_testing.backends import BackendConformance
    from specdec_testing.hosts import HostConformance
    from specdec_testing.proposers import ProposerConformance
    from specdec_testing.samplers import SamplerConformance
    from specdec_testing.scorers import ScorerConformance


__all__ = [
    "BackendConformance",
    "HostConformance",
    "ProposerConformance",
    "SamplerConformance",
    "ScorerConformance",
]

__getattr__ = lazily(__name__)
