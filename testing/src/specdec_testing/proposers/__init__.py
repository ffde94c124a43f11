"""The suite for proposers."""

from __future__ import annotations

from specdec_testing.proposers.caps import CapTests
from specdec_testing.proposers.declarations import DeclarationTests
from specdec_testing.proposers.delivery import DeliveryTests
from specdec_testing.proposers.determinism import DeterminismTests
from specdec_testing.proposers.distributions import DistributionTests
from specdec_testing.proposers.engine import EngineTests
from specdec_testing.proposers.life import LifeTests
from specdec_testing.proposers.prefix import PrefixTests

__all__ = ["ProposerConformance"]


# pytest runs the tests of the last base first.
class ProposerConformance(
    EngineTests,
    DistributionTests,
    DeterminismTests,
    PrefixTests,
    LifeTests,
    DeliveryTests,
    CapTests,
    DeclarationTests,
):
    """The promises of a proposer, one test each.

    A subclass sets `method` (a name, the class, or `./file.py:Class`) and, if needed, `config` (the other keys of
    `speculative_config`), `model` (the target: `zoo`, `tiny`, a directory, or a model) and `prompts` (texts on which the method
    drafts). Tests of capabilities that a method does not declare are skipped, with the reason.
    """
