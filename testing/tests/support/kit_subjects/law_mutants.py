"""Proposers that break one promise each about q, declarations and the engine."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from dataclasses import replace

import torch

from kit_subjects.breaking import Mutants, register_in
from kit_subjects.memory import writable
from kit_subjects.toys import Chain, Drawn, Siblings, Tree
from specdec.engine.sequence import Sequence as EngineSequence
from specdec.interfaces import (
    Capability,
    Draft,
    DraftSampling,
    ProposeBatch,
    ProposerConfig,
    TargetHandle,
    TargetInfo,
)

MUTANTS: Mutants = {}
breaks = register_in(MUTANTS)


def lie(law: torch.Tensor, distance: float = 0.05) -> torch.Tensor:
    """Return a distribution at a total variation of `distance`: the likelier half of the ids gives mass to the other half."""
    likely = law >= law.median(-1, keepdim=True).values
    taken = torch.where(likely, law, 0.0)
    given = torch.where(likely, 0.0, law)
    share = distance / taken.sum(-1, keepdim=True), distance / given.sum(-1, keepdim=True)
    return taken * (1 - share[0]) + given * (1 + share[1])


@breaks("test_tokens_follow_their_q")
class LiesByTemperature(Drawn):
    """Draws a little sharper than it says."""

    def draw(
        self, batch: ProposeBatch, last: torch.Tensor, rows: list[int], node: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tokens, _ = batch.draws.sample(1.15 * self.logits[last], rows, node)
        return tokens, torch.softmax(self.logits[last], -1)


@breaks("test_tokens_follow_their_q")
class LiesByOneTwentieth(Drawn):
    """Reports a q at a total variation of 0.05 from the distribution it draws from."""

    def draw(
        self, batch: ProposeBatch, last: torch.Tensor, rows: list[int], node: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        said = torch.softmax(self.logits[last], -1)
        return batch.draws.sample(lie(said).log(), rows, node)[0], said


@breaks("test_tokens_follow_their_q")
class DropsWhatItDrew(Drawn):
    """Leaves out a node whose token came out unlikely: its presence depends on its own token."""

    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        draft = super().drafted(batch, caps)
        ids = draft.token_ids.clone()
        assert draft.node_probs is not None
        drawn = draft.node_probs[:, :-1].gather(2, ids.clamp_min(0)[..., None])[..., 0]
        ids[((drawn < 0.02) | (ids < 0)).cumsum(1) > 0] = -1
        return replace(draft, token_ids=ids)


@breaks("test_tokens_follow_their_q")
class SiblingsOfTheWholeLaw(Siblings):
    """Says that siblings were drawn without replacement, and drew them independently."""

    def propose(self, batch: ProposeBatch) -> Draft:
        draft = super().propose(batch)
        return replace(draft, sampling=DraftSampling.IID)


@breaks("test_no_draw_is_used_twice")
class OneDrawForAllNodes(Drawn):
    def draw(
        self, batch: ProposeBatch, last: torch.Tensor, rows: list[int], node: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return batch.draws.sample(self.logits[last], rows, 0)


@breaks("test_tokens_follow_their_q")
class OneDrawBehindTheKitsBack(Drawn):
    """Draws every node with noise of its own making, the same for all nodes."""

    def draw(
        self, batch: ProposeBatch, last: torch.Tensor, rows: list[int], node: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        law = torch.softmax(self.logits[last], -1)
        seeds = [batch.sampling_params[row].seed or 0 for row in rows]
        uniforms = torch.tensor([random.Random(seed).random() for seed in seeds])
        return (law.cumsum(-1) < uniforms[:, None]).sum(-1).clamp_max(law.shape[-1] - 1), law


@breaks("test_q_is_a_distribution")
class HalfALaw(Drawn):
    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        draft = super().drafted(batch, caps)
        assert draft.node_probs is not None
        return replace(draft, node_probs=draft.node_probs / 2)


@breaks("test_q_is_a_distribution")
class LawsOneRowLate(Drawn):
    """Sharpens, so that q of the wrong row often gives the drawn token probability 0."""

    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        draft = super().drafted(batch, caps)
        assert draft.node_probs is not None
        laws = torch.softmax(60 * draft.node_probs.roll(1, 1), -1)
        return replace(draft, node_probs=torch.where(laws > 1e-6, laws, 0.0))


@breaks("test_q_is_a_distribution")
class MapsTwoIdsToOne(Drawn):
    """Says of two ids of its own that they are the same one of the target's."""

    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        vocab_map = torch.arange(self.target_info.vocab_size)
        vocab_map[5] = 6
        return replace(super().drafted(batch, caps), vocab_map=vocab_map)


@breaks("test_q_is_a_distribution")
class MapsAnIdToNothing(Drawn):
    """Marks an id that the target does not have with -1, which reads as padding where it is drawn."""

    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        vocab_map = torch.arange(self.target_info.vocab_size)
        vocab_map[5] = -1
        return replace(super().drafted(batch, caps), vocab_map=vocab_map)


@breaks("test_trees_are_declared")
class UndeclaredTree(Tree):
    capabilities = frozenset()


@breaks("test_trees_are_declared")
class NoTreeThoughDeclared(Chain):
    capabilities = frozenset({Capability.TREE})


@breaks("test_q_is_declared")
class UndeclaredQ(Drawn):
    capabilities = frozenset()


@breaks("test_q_is_declared")
class NoQThoughDeclared(Chain):
    capabilities = frozenset({Capability.DRAFT_PROBS})


@breaks("test_confidence_is_a_probability")
class ConfidenceAboveOne(Tree):
    def propose(self, batch: ProposeBatch) -> Draft:
        draft = super().propose(batch)
        assert draft.confidence is not None
        return replace(draft, confidence=draft.confidence * 3)


@breaks("test_only_declared_parts_of_the_target_are_used")
class NotTokensOnly(Chain):
    def load(self, target: TargetHandle) -> None:
        self.num_ids = target.embed_tokens.weight.shape[0]


@breaks("test_only_declared_parts_of_the_target_are_used")
class ReadsTheCache(Chain):
    def load(self, target: TargetHandle) -> None:
        target.make_cache_reader()


@breaks("test_capabilities_fit_together")
class MoreThanTheClass(Chain):
    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self.capabilities = frozenset({Capability.TREE})


@breaks("test_capabilities_fit_together")
class LayersWithoutNeed(Chain):
    aux_layer_ids = (1,)


@breaks("test_it_drafts")
class NeverDrafts(Chain):
    def guess(self, text: Sequence[int], count: int) -> list[int]:
        return []


@breaks("test_greedy_text_is_that_of_plain_decoding")
class RaisesInTheEngine(Chain):
    """Goes wrong where `max_tokens` is set, as no other test has it."""

    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        assert all(params.max_tokens is None for params in batch.sampling_params)
        return super().drafted(batch, caps)


@breaks("test_sampled_text_is_that_of_plain_decoding")
class ChangesTheText(Chain):
    """Searches the process for the engine's own tokens, which no batch leads to, and writes into them."""

    def drafted(self, batch: ProposeBatch, caps: Sequence[int]) -> Draft:
        if any(params.max_tokens is not None for params in batch.sampling_params):
            for found in gc.get_objects():
                if type(found) is EngineSequence and found.num_output_tokens:
                    writable(found.token_ids)[-1] = 1
        return super().drafted(batch, caps)
