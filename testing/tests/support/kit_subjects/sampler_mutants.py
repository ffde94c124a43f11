"""Samplers that break one promise each, and the test of the kit that must say so."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch

from kit_subjects.breaking import Mutants, register_in
from specdec.interfaces import (
    Capability,
    Draft,
    DraftSampling,
    DrawnNodes,
    Scores,
    Verdict,
    VerifyBatch,
)
from specdec.samplers.probabilistic import ProbabilisticSampler
from specdec.samplers.strict import StrictSampler
from specdec.sampling_params import SamplingParams

MUTANTS: Mutants = {}
breaks = register_in(MUTANTS)


@breaks("test_the_class_says_what_it_does")
class UsesWhatNobodyUses(StrictSampler):
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.OWN_KV})


@breaks("test_the_class_says_what_it_does")
class SaysNothingOfGreedy(StrictSampler):
    is_greedy_exact: ClassVar[bool] = None  # type: ignore[assignment]  # the mistake


@breaks("test_the_class_says_what_it_does")
class LosslessButNotGreedy(StrictSampler):
    is_greedy_exact: ClassVar[bool] = False


@breaks("test_accepted_nodes_are_a_path_and_one_token_follows")
class NodesByDepth(StrictSampler):
    """Takes the number of accepted nodes for their indices, as is right for chains."""

    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        verdict = super().verify(scores, batch)
        return replace(verdict, accepted_nodes=[list(range(len(nodes))) for nodes in verdict.accepted_nodes])


@breaks("test_accepted_nodes_are_a_path_and_one_token_follows")
class NoBonusToken(StrictSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        verdict = super().verify(scores, batch)
        tokens = [
            list(row)[: max(1, len(nodes))]
            for row, nodes in zip(verdict.token_ids, verdict.accepted_nodes, strict=True)
        ]
        return replace(verdict, token_ids=tokens)


@breaks("test_a_step_in_which_nobody_samples")
class ExpectsSomebody(StrictSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        assert batch.seeds[0] is not None
        return super().verify(scores, batch)


@breaks("test_temperature_zero_is_the_argmax_path")
class TiesToTheHighestId(StrictSampler):
    """Sees the vocabulary backwards."""

    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        last = scores.logits.shape[-1] - 1
        nodes = [[last - token for token in row] for row in batch.nodes]
        verdict = super().verify(replace(scores, logits=scores.logits.flip(-1)), replace(batch, nodes=nodes))
        return replace(verdict, token_ids=[[last - token for token in row] for row in verdict.token_ids])


@breaks("test_temperature_zero_is_the_argmax_path")
class KnowsNoGreedy(StrictSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        params = [SamplingParams(temperature=1.0)] * len(batch.seeds)
        return super().verify(scores, replace(batch, sampling_params=params))


@breaks("test_temperature_zero_is_the_argmax_path")
class GreedyOnlyForAll(StrictSampler):
    """Samples greedy rows that are in a batch with sampled ones."""

    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        if not batch.is_all_greedy:
            batch = replace(batch, sampling_params=[SamplingParams(temperature=1.0)] * len(batch.seeds))
        return super().verify(scores, batch)


@breaks("test_temperature_zero_is_the_argmax_path")
class FirstOfEqualSiblings(StrictSampler):
    """Stops where the first of equal siblings has no child."""

    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        verdict = super().verify(scores, batch)
        if batch.parents is None:
            return verdict
        nodes, tokens = [], []
        for row, links, path, emitted in zip(
            batch.nodes, batch.parents, verdict.accepted_nodes, verdict.token_ids, strict=True
        ):
            heads = list(zip(links, row, strict=False))
            kept = next((at for at, node in enumerate(path) if heads.index(heads[node]) < node), len(path))
            if kept < len(path):
                path, kept = [*path[:kept], heads.index(heads[path[kept]])], kept + 1
            nodes.append(path)
            tokens.append(emitted[: kept + 1])
        return Verdict(nodes, tokens)


@breaks("test_forbidden_ids_are_never_emitted")
class ForbidsALittle(StrictSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        return super().verify(replace(scores, logits=scores.logits.clamp_min(-3.0)), batch)


@breaks("test_the_same_seed_gives_the_same_verdict")
class Unseeded(StrictSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        return super().verify(
            scores, replace(batch, seeds=torch.randint(0, 2**40, (len(batch.seeds),)).tolist())
        )


@breaks("test_requests_do_not_depend_on_each_other")
class NoiseOfTheRow(StrictSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        return super().verify(scores, replace(batch, seeds=list(range(len(batch.seeds)))))


@breaks("test_inputs_are_not_written_to")
class NormalisesInPlace(StrictSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        scores.logits.sub_(scores.logits.logsumexp(-1, keepdim=True))
        return super().verify(scores, batch)


@breaks("test_without_a_draft_tokens_follow_the_target")
class TooWarm(StrictSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        return super().verify(replace(scores, logits=scores.logits / 1.15), batch)


@breaks("test_chains_without_q_leave_the_law_alone")
class BiasedResidual(StrictSampler):
    """After a rejection draws from p once more, the rejected token included."""

    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        verdict = super().verify(scores, batch)
        ends = [nodes[-1] if nodes else -1 for nodes in verdict.accepted_nodes]
        rows = [batch.row_of(index, node) for index, node in enumerate(ends)]
        other = replace(
            batch, nodes=[()] * len(rows), parents=None, drawn=None, seeds=[seed + 1 for seed in batch.seeds]
        )
        again = super().verify(replace(scores, logits=scores.logits[rows]), other)
        tokens = []
        for index, drawn in enumerate(verdict.token_ids):
            was_rejected = ends[index] < batch.num_nodes[index] - 1
            tokens.append([*drawn[:-1], again.token_ids[index][0] if was_rejected else drawn[-1]])
        return replace(verdict, token_ids=tokens)


@breaks("test_trees_without_q_leave_the_law_alone")
class TakesSureForDrawn(ProbabilisticSampler):
    """Gives drafts without q one that is uniform."""

    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        if batch.drawn is None and max(batch.num_nodes):
            size, ids = scores.logits.shape[-1], Draft.from_lists(batch.nodes).token_ids
            probs = torch.full((len(batch.seeds), ids.shape[1] + 1, size), 1 / size)
            batch = replace(batch, drawn=DrawnNodes(ids, probs, DraftSampling.IID))
        return super().verify(scores, batch)


@breaks("test_drawn_chains_leave_the_law_alone")
class LawsBackwards(ProbabilisticSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        if batch.drawn is not None:
            batch = replace(batch, drawn=replace(batch.drawn, node_probs=batch.drawn.node_probs.flip(-1)))
        return super().verify(scores, batch)


@breaks("test_independent_siblings_leave_the_law_alone")
class TakesOutWhatWasNot(ProbabilisticSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        if batch.drawn is not None:
            batch = replace(batch, drawn=replace(batch.drawn, sampling=DraftSampling.WITHOUT_REPLACEMENT))
        return super().verify(scores, batch)


@breaks("test_siblings_without_replacement_leave_the_law_alone")
class TakesOutNothing(ProbabilisticSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        if batch.drawn is not None:
            batch = replace(batch, drawn=replace(batch.drawn, sampling=DraftSampling.IID))
        return super().verify(scores, batch)


@breaks("test_a_reduced_vocabulary_leaves_the_law_alone")
class IgnoresTheMap(ProbabilisticSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        if batch.drawn is not None and batch.drawn.vocab_map is not None:
            same = torch.arange(len(batch.drawn.vocab_map))
            batch = replace(batch, drawn=replace(batch.drawn, vocab_map=same))
        return super().verify(scores, batch)


@breaks("test_rows_with_and_without_q_leave_the_law_alone")
class TakesAllForDrawn(ProbabilisticSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        drawn = batch.drawn
        if drawn is not None and drawn.has_probs is not None:
            size = drawn.node_probs.shape[-1]
            probs = torch.where(drawn.has_probs[:, None, None], drawn.node_probs, 1 / size)
            batch = replace(batch, drawn=replace(drawn, has_probs=None, node_probs=probs))
        return super().verify(scores, batch)


@breaks("test_steps_share_no_draw")
class OneDrawForAllSteps(StrictSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        return super().verify(scores, replace(batch, num_tokens=[1] * len(batch.seeds)))


@breaks("test_samples_share_no_draw")
class OneDrawForAllSamples(StrictSampler):
    def verify(self, scores: Scores, batch: VerifyBatch) -> Verdict:
        return super().verify(scores, replace(batch, sample_indices=[0] * len(batch.seeds)))
