"""The suite for proposers."""

from __future__ import annotations

from specdec.testing.proposers.caps import CapTests
from specdec.testing.proposers.declarations import DeclarationTests
from specdec.testing.proposers.delivery import DeliveryTests
from specdec.testing.proposers.determinism import DeterminismTests
from specdec.testing.proposers.engine import EngineTests
from specdec.testing.proposers.laws import LawTests
from specdec.testing.proposers.life import LifeTests
from specdec.testing.proposers.prefix import PrefixTests

__all__ = ["ProposerConformance"]


# pytest runs the tests of the last base first.
class ProposerConformance(
    EngineTests, LawTests, DeterminismTests, PrefixTests, LifeTests, DeliveryTests, CapTests, DeclarationTests
):
    """The promises of a proposer, one test each.

    A subclass sets `method` (a name, the class, or `./file.py:Class`) and, if needed, `config` (the other keys of
    `speculative_config`), `model` (the target: `zoo`, `tiny`, a directory, or a model) and `prompts` (texts on which the method
    drafts). Tests of capabilities that a method does not declare are skipped, with the reason.
    """
