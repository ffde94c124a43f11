"""Scorers that break one promise each, and the test of the kit that must say so."""

from __future__ import annotations

from dataclasses import replace

import torch

from kit_subjects.breaking import Mutants, register_in
from specdec.engine_options import EngineOptions
from specdec.interfaces import ScoreBatch, Scores, TargetHandle
from specdec_runtime.interfaces import KVCache
from specdec_runtime.scorers.transformers import TransformersScorer

MUTANTS: Mutants = {}
breaks = register_in(MUTANTS)


@breaks("test_the_handle_describes_the_target")
class WrongFacts(TransformersScorer):
    def load(self, options: EngineOptions) -> TargetHandle:
        handle = super().load(options)
        return replace(handle, info=replace(handle.info, num_layers=handle.info.num_layers + 1))


@breaks("test_a_prompt_is_a_plain_pass")
class FirstRowOfAPrompt(TransformersScorer):
    def score(self, batch: ScoreBatch) -> Scores:
        before = [int(row.sequence.token_ids[0]) for row in batch.rows]
        scores = super().score(batch)
        return replace(scores, raw_logits=scores.raw_logits.roll(before[0] % 3 + 1, -1))


@breaks("test_pieces_of_a_prompt_make_no_difference")
class ForgetsEarlierPieces(TransformersScorer):
    def score(self, batch: ScoreBatch) -> Scores:
        for row in batch.rows:
            if row.start and row.chunk > 1:
                blank(self.cache, row.sequence.first_slot, row.start)
        return super().score(batch)


@breaks("test_rows_of_a_chain_are_those_of_its_texts")
class RowsInDisorder(TransformersScorer):
    def score(self, batch: ScoreBatch) -> Scores:
        scores = super().score(batch)
        order = torch.arange(len(scores.raw_logits))
        if len(order) > 2:
            order[[-1, -2]] = order[[-2, -1]]
        return replace(scores, raw_logits=scores.raw_logits[order])


@breaks("test_rows_of_a_tree_are_those_of_its_paths")
class TreesAreChains(TransformersScorer):
    def score(self, batch: ScoreBatch) -> Scores:
        for row in batch.rows:
            row.parents = None
        return super().score(batch)


@breaks("test_the_next_step_builds_on_what_was_accepted")
class GathersNothing(TransformersScorer):
    def allocate(self) -> None:
        super().allocate()
        self.runner.cache.gather = lambda sources, destination: None


@breaks("test_requests_do_not_see_each_other")
class OnePlaceForAll(TransformersScorer):
    """Lets every request write where the first one lies."""

    def score(self, batch: ScoreBatch) -> Scores:
        sequences = [row.sequence for row in batch.rows]
        slots = [sequence.first_slot for sequence in sequences]
        for sequence in sequences:
            sequence.first_slot = slots[0]
        try:
            return super().score(batch)
        finally:
            for sequence, slot in zip(sequences, slots, strict=True):
                sequence.first_slot = slot


@breaks("test_sampling_parameters_are_applied")
class RawLogits(TransformersScorer):
    def score(self, batch: ScoreBatch) -> Scores:
        scores = super().score(batch)
        return replace(scores, logits=scores.raw_logits)


@breaks("test_hidden_states_are_those_of_the_layers")
class StatesOneRowLate(TransformersScorer):
    def score(self, batch: ScoreBatch) -> Scores:
        scores = super().score(batch)
        if scores.hidden_states is None:
            return scores
        return replace(scores, hidden_states=scores.hidden_states.roll(1, 0))


@breaks("test_hidden_states_are_those_of_the_layers")
class NoStates(TransformersScorer):
    def score(self, batch: ScoreBatch) -> Scores:
        return replace(super().score(batch), hidden_states=None)


@breaks("test_a_pass_can_be_run_again")
class NeverAgain(TransformersScorer):
    def score(self, batch: ScoreBatch) -> Scores:
        kept, self.on_pass = self.on_pass, None
        scores = super().score(batch)
        self.on_pass = kept
        return scores


def blank(cache: KVCache, first: int, count: int) -> None:
    """Overwrite rows of a cache."""
    for tensors in (cache.keys, cache.values):
        for tensor in tensors.values():
            tensor[first : first + count] = 0.0
