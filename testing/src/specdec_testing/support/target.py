"""The targets that plugins are checked on, loaded once per process."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from specdec import ConfigError, EngineOptions, SamplingParams, registry
from specdec.config import resolve_name
from specdec.engine import Row, Step
from specdec.engine import Sequence as EngineSequence
from specdec.interfaces import Scorer, TargetHandle
from specdec_runtime.loading import LoadedTarget, load_target
from specdec_testing.support.tiny import TINY, tiny_model

MAX_LEN = 128
"""Maximum context length of the checks, in tokens."""
MIN_LEN = 80
"""Minimum context length for the texts of the checks."""
MAX_BATCH = 64
"""The most requests in one batch of the checks."""

_BLOCK = 16

Model = str | PreTrainedModel
"""A directory, a hub id, `zoo`, `tiny`, or a loaded model."""


class CheckTarget:
    """One target: its handle for proposers, and the hidden states of any text.

    Args:
        loaded: the loaded target, which other engines may share.
    """

    def __init__(self, loaded: LoadedTarget) -> None:
        self.loaded = loaded
        self.max_len = loaded.max_model_len
        self.scorer: Scorer = registry.scorer(EngineOptions.scorer)()
        self.handle: TargetHandle = self.scorer.load(
            EngineOptions(model=loaded, max_model_len=self.max_len, max_num_seqs=MAX_BATCH)
        )
        self.scorer.allocate()
        self._stride = -(-(self.max_len + 1) // _BLOCK) * _BLOCK
        self._states: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[torch.Tensor, ...]] = {}
        self._before: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[torch.Tensor, ...]] = {}

    def states(self, tokens: Sequence[int], aux_layer_ids: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
        """Return the final state and the inputs of some layers at every position of a text, each `[n, H]`."""
        key = (tuple(tokens), aux_layer_ids)
        if key not in self._states:
            self.scorer.capture_hidden(aux_layer_ids)
            sequence = EngineSequence(
                "states",
                np.array(tokens, np.int32),
                SamplingParams(),
                seed=0,
                sample_index=0,
                max_num_tokens=len(tokens),
            )
            sequence.first_slot = 0
            scores = self.scorer.score(_step_of([Row(sequence, 0, len(tokens), 0, len(tokens), True)]))
            assert scores.hidden_states is not None
            self._states[key] = (scores.hidden_states.clone(), *(s.clone() for s in scores.aux_hidden_states))
        return self._states[key]

    def states_before(
        self, tokens: Sequence[int], aux_layer_ids: tuple[int, ...]
    ) -> tuple[torch.Tensor, ...]:
        """Return the same for the position before each token; zeros before the first."""
        key = (tuple(tokens), aux_layer_ids)
        if key not in self._before:
            states = self.states(tokens, aux_layer_ids)
            self._before[key] = tuple(
                torch.cat((state.new_zeros(1, state.shape[1]), state[:-1])) for state in states
            )
        return self._before[key]

    def hold(self, sequences: Sequence[EngineSequence]) -> None:
        """Give sequences places in the target's cache, with the rows of all their tokens but the last one."""
        for place, sequence in enumerate(sequences):
            sequence.first_slot = place * self._stride
        rows = [Row(sequence, 0, sequence.num_tokens, 0, sequence.num_tokens - 1) for sequence in sequences]
        if any(row.chunk for row in rows):
            self.scorer.score(_step_of(rows))


def _step_of(rows: list[Row]) -> Step:
    step = Step(rows)
    step.sampled = [row for row in rows if row.is_sampled]
    return step


@cache
def check_target(model: Model) -> CheckTarget:
    """Return the target behind the `model` of a suite.

    Raises:
        ConfigError: if it is the zoo and that is not installed, or if its context is too short.
        ModelError: if it cannot be served.
    """
    return CheckTarget(_load(model))


@cache
def reference_model(model: Model) -> PreTrainedModel:
    """Return the same model without an engine, with the eager attention of `transformers`."""
    if isinstance(model, str) and model != TINY:
        reference: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            resolve_name(model, dtype="float32"), dtype=torch.float32, attn_implementation="eager"
        )
        reference.eval()
        return reference
    reference = copy.deepcopy(tiny_model() if isinstance(model, str) else model)
    reference.set_attn_implementation("eager")
    return reference


def as_engine_model(model: Model) -> Model:
    """Return the model for an engine; a model object is copied because engines modify it."""
    if isinstance(model, str) and model != TINY:
        return model
    return copy.deepcopy(tiny_model() if isinstance(model, str) else model)


def _load(model: Model) -> LoadedTarget:
    # float32, because in 16 bits logits depend on the number of rows of a pass, and texts could differ without a bug.
    given = as_engine_model(model)
    loaded = load_target(EngineOptions(model=given, dtype="float32"))
    longest = min(MAX_LEN, loaded.max_model_len)
    if longest < MIN_LEN:
        raise ConfigError(
            f"model: checks need a context of {MIN_LEN} tokens, this target has one of {longest}"
        )
    return load_target(EngineOptions(model=loaded, max_model_len=longest))
