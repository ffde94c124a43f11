"""Tokens that are drafted without a proposer: what a package that knows some does for core."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from specdec.interfaces.grammar import GrammarState
from specdec.interfaces.part import Part
from specdec.sampling_params import SamplingParams


class ExpectedTokens(ABC):
    """What is expected next in one sample: what its rules force, or what its caller predicts.

    Drafts are point masses that depend on committed tokens alone, so every sampler verifies them without loss.
    """

    name: str = ""
    """What the last draft is from, shown as its proposer."""
    num_drafts: int = 0
    """Number of verified drafts."""
    num_accepted: int = 0
    """Number of their accepted tokens."""
    num_accepted_predicted: int = 0
    """Those of the caller's prediction."""
    num_rejected_predicted: int = 0
    """Tokens of the prediction that were not accepted."""

    @abstractmethod
    def draft(self, num_output: int, room: int, num_sequences: int) -> list[int]:
        """Return the tokens expected next, at most `room`.

        Args:
            num_output: number of committed output tokens.
            room: most tokens that fit the sample.
            num_sequences: number of sequences that run.
        """

    @abstractmethod
    def advance(self, output: Sequence[int], num_new: int) -> None:
        """Take in the output, whose last `num_new` tokens are new."""

    @abstractmethod
    def observe(self, num_drafted: int, num_accepted: int) -> None:
        """Record that the last draft was verified."""

    @abstractmethod
    def observe_step(self, num_sequences: int, num_nodes: int, seconds: float) -> None:
        """Record, for all samples, what a step cost in which all sequences decode; told to one of them."""


class Expectations(Part):
    """Part `expected_tokens`: makes the expectations of samples. One object serves one engine."""

    @abstractmethod
    def of_sample(
        self,
        params: SamplingParams,
        grammar: GrammarState | None,
        prediction: Sequence[int],
        end_ids: Collection[int],
    ) -> ExpectedTokens:
        """Return what is expected in a sample without tokens; called from several threads.

        Args:
            params: the request's parameters.
            grammar: the sample's grammar, or None.
            prediction: the output that its caller predicts, or nothing.
            end_ids: the tokens that may end the sample, which `min_tokens` forbids.
        """
