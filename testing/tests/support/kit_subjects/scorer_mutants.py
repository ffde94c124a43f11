"""Scorers that break one promise each, and the test of the kit that must say so."""

from __future__ import annotations

from dataclasses import replace

import torch

from kit_subjects.breaking import Mutants, register_in
from specdec.engine_options import EngineOptions
from specdec.interfaces import CheckedDraft, KVCache, ScoreBatch, Scores, TargetHandle
from specdec.scorers.transformers import TransformersScorer

MUTANTS: Mutants = {}
breaks = register_in(MUTANTS)


@breaks("test_the_handle_describes_the_target")
class WrongFacts(TransformersScorer):
    def load(self, options: EngineOptions) -> TargetHandle:
        handle = super().load(options)
        return replace(handle, info=replace(handle.info, num_layers=handle.info.num_layers + 1))


@breaks("test_a_prompt_is_a_plain_pass")
class FirstRowOfAPrompt(TransformersScorer):
    def score(self, batch: ScoreBatch, draft: CheckedDraft) -> Scores:
        before = [int(s.token_ids[0]) for s in batch.sequences]
        scores = super().score(batch, draft)
        return replace(scores, raw_logits=scores.raw_logits.roll(before[0] % 3 + 1, -1))


@breaks("test_pieces_of_a_prompt_make_no_difference")
class ForgetsEarlierPieces(TransformersScorer):
    def score(self, batch: ScoreBatch, draft: CheckedDraft) -> Scores:
        for sequence, chunk in zip(batch.sequences, batch.chunks, strict=True):
            if sequence.num_computed and chunk > 1:
                blank(self.cache, sequence.first_slot, sequence.num_computed)
        return super().score(batch, draft)


@breaks("test_rows_of_a_chain_are_those_of_its_texts")
class RowsInDisorder(TransformersScorer):
    def score(self, batch: ScoreBatch, draft: CheckedDraft) -> Scores:
        scores = super().score(batch, draft)
        order = torch.arange(len(scores.raw_logits))
        if len(order) > 2:
            order[[-1, -2]] = order[[-2, -1]]
        return replace(scores, raw_logits=scores.raw_logits[order])


@breaks("test_rows_of_a_tree_are_those_of_its_paths")
class TreesAreChains(TransformersScorer):
    def score(self, batch: ScoreBatch, draft: CheckedDraft) -> Scores:
        return super().score(batch, replace(draft, parents=None))


@breaks("test_the_next_step_builds_on_what_was_accepted")
class GathersNothing(TransformersScorer):
    def allocate(self) -> None:
        super().allocate()
        self.runner.cache.gather = lambda sources, destination: None


@breaks("test_requests_do_not_see_each_other")
class OnePlaceForAll(TransformersScorer):
    """Lets every request write where the first one lies."""

    def score(self, batch: ScoreBatch, draft: CheckedDraft) -> Scores:
        slots = [sequence.first_slot for sequence in batch.sequences]
        for sequence in batch.sequences:
            sequence.first_slot = slots[0]
        try:
            return super().score(batch, draft)
        finally:
            for sequence, slot in zip(batch.sequences, slots, strict=True):
                sequence.first_slot = slot


@breaks("test_sampling_parameters_are_applied")
class RawLogits(TransformersScorer):
    def score(self, batch: ScoreBatch, draft: CheckedDraft) -> Scores:
        scores = super().score(batch, draft)
        return replace(scores, logits=scores.raw_logits)


@breaks("test_hidden_states_are_those_of_the_layers")
class StatesOneRowLate(TransformersScorer):
    def score(self, batch: ScoreBatch, draft: CheckedDraft) -> Scores:
        scores = super().score(batch, draft)
        if scores.hidden_states is None:
            return scores
        return replace(scores, hidden_states=scores.hidden_states.roll(1, 0))


@breaks("test_hidden_states_are_those_of_the_layers")
class NoStates(TransformersScorer):
    def score(self, batch: ScoreBatch, draft: CheckedDraft) -> Scores:
        return replace(super().score(batch, draft), hidden_states=None)


@breaks("test_a_pass_can_be_run_again")
class NeverAgain(TransformersScorer):
    def score(self, batch: ScoreBatch, draft: CheckedDraft) -> Scores:
        kept, self.on_pass = self.on_pass, None
        scores = super().score(batch, draft)
        self.on_pass = kept
        return scores


def blank(cache: KVCache, first: int, count: int) -> None:
    """Overwrite rows of a cache."""
    for tensors in (cache.keys, cache.values):
        for tensor in tensors.values():
            tensor[first : first + count] = 0.0
