"""Shared parts of the scorer suite: settings, and a loaded scorer."""

from __future__ import annotations

from typing import ClassVar

import torch

from specdec import EngineOptions, registry
from specdec.interfaces import Scorer, TargetHandle
from specdec_testing.support.conformance import Conformance, once_per_suite
from specdec_testing.support.passes import Passes, PassRows, difference, reference_rows
from specdec_testing.support.subjects import path_of
from specdec_testing.support.target import Model, as_engine_model, reference_model
from specdec_testing.support.texts import repetitive
from specdec_testing.support.tiny import DEFAULT_MODEL
from specdec_testing.support.verdicts import broken

MAX_LEN = 96
MAX_SEQS = 4
TOLERANCE = 2e-3
"""The largest difference allowed for rounding in float32, relative to the largest logit."""


class ScorerSuite(Conformance):
    """Settings and helpers of `ScorerConformance`."""

    settings: ClassVar[frozenset[str]] = frozenset({"scorer", "model"})

    scorer: ClassVar[str | type[Scorer]]
    """The scorer: its name, its class, or a path such as `./file.py:Class`."""
    model: ClassVar[Model] = DEFAULT_MODEL
    """The target: `zoo`, `tiny`, a directory, a hub id, or a model."""

    def _passes(self) -> Passes:
        return self._shared[1]

    def _handle(self) -> TargetHandle:
        return self._shared[2]

    def _texts(self, *lengths: int) -> list[list[int]]:
        vocab_size = self._handle().info.vocab_size
        return [repetitive(vocab_size, 40 + seed, length) for seed, length in enumerate(lengths)]

    @property
    @once_per_suite
    def _shared(self) -> tuple[Scorer, Passes, TargetHandle]:
        return self._new()

    def _new(self) -> tuple[Scorer, Passes, TargetHandle]:
        """Return a new scorer, for tests that change its settings."""
        scorer = registry.scorer(self.scorer if isinstance(self.scorer, str) else path_of(self.scorer))()
        options = EngineOptions(
            model=as_engine_model(self.model),
            dtype="float32",
            max_model_len=MAX_LEN,
            max_num_seqs=MAX_SEQS,
            skip_tokenizer_init=True,
        )
        handle = scorer.load(options)
        scorer.allocate()
        return scorer, Passes(scorer, MAX_LEN), handle

    def _check_rows(self, rows: torch.Tensor, part: PassRows, what: str) -> None:
        """Compare the rows `[1 + num_nodes, V]` of a request with separate passes over the paths to its nodes."""
        nodes = range(-1, len(part.nodes))
        if len(rows) != len(nodes):
            broken(f"{what}: {len(rows)} rows of raw_logits, where {len(nodes)} belong")
        expected = reference_rows(reference_model(self.model), [part.path(node) for node in nodes])
        for node in nodes:
            off = difference(rows[node + 1], expected[node + 1])
            if not off <= TOLERANCE:
                place = "the last committed token" if node < 0 else f"node {node}"
                broken(
                    f"{what}: logits after {place} are {off:.2g} off those of a plain pass over the same text"
                )
