"""The suite for backends."""

from __future__ import annotations

from specdec_testing.backends.answers import AnswerTests
from specdec_testing.backends.chains import ChainTests
from specdec_testing.backends.decisions import DecisionTests
from specdec_testing.backends.engine import EngineTests
from specdec_testing.backends.forms import FormTests
from specdec_testing.backends.operations import OperationTests

__all__ = ["BackendConformance"]


# pytest runs the tests of the last base first.
class BackendConformance(EngineTests, DecisionTests, OperationTests, ChainTests, FormTests, AnswerTests):
    """The promises of a backend, one test each: what it offers agrees with what core does with torch.

    A subclass sets `backend` (a name, the class, or `./file.py:Class`) and, if needed, `model`. What the backend declines is
    not applicable. Forms of heads are compared by core when a head is loaded.
    """
