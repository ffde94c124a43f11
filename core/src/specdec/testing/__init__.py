"""The conformance kit: test suites that a plugin must pass. Plugin authors subclass them.

One class in a test file is enough; pytest needs no conftest and no fixture:

    from specdec.testing import ProposerConformance

    class TestMine(ProposerConformance):
        method = "my_idea"
        config = {"num_speculative_tokens": 4}

Each test checks one promise. Its docstring states the promise and, after "To fix:", what to change if it is broken.
`specdec check my_idea` runs the same tests. Needs pytest: `pip install "specdec-core[testing]"`.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pytest") is None:
    raise ImportError('specdec.testing needs pytest: pip install "specdec-core[testing]"', name="pytest")

from specdec.testing.proposers import ProposerConformance
from specdec.testing.samplers import SamplerConformance
from specdec.testing.scorers import ScorerConformance

__all__ = ["ProposerConformance", "SamplerConformance", "ScorerConformance"]
