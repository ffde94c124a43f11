"""Backends that break one promise each, and the test of the kit that must say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from kit_subjects.backends import Right, RightChain, RightForm
from kit_subjects.breaking import Mutants, register_in
from specdec.interfaces import Declined, Scores, Verdict, Verify, VerifyBatch
from specdec.noise import Stream, node_word
from specdec.noise.torch_rows import TorchRows
from specdec_runtime.interfaces import AttentionNeeds, ChainWork, Form, ForwardOutput, PackedBatch, Runner
from specdec_runtime.runner import SdpaAttention

MUTANTS: Mutants = {}
breaks = register_in(MUTANTS)


def with_form(form_class: type[RightForm]) -> type[Right]:
    """Return a backend with another form, named like it."""
    return type(form_class.__name__, (Right,), {"form_class": form_class})


@breaks("test_every_question_is_answered")
class KnowsTwoDtypes(Right):
    def attention(self, needs: AttentionNeeds) -> Any:
        return {torch.float32: SdpaAttention, torch.bfloat16: SdpaAttention}[needs.dtype]


@breaks("test_every_question_is_answered")
class ReturnsNothing(Right):
    def form(self, runner: Runner, stage: int, inner: Form) -> Any:
        return None


@breaks("test_a_reason_is_a_clause")
class EndsItsReason(Right):
    def linear(self, module: nn.Linear) -> Declined:
        return Declined("There is no product for this processor.")


@breaks("test_a_reason_is_a_clause")
class GivesNoReason(Right):
    def linear(self, module: nn.Linear) -> Declined:
        return Declined("")


@breaks("test_core_takes_the_form")
@with_form
class OffByAPercent(RightForm):
    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        output = super().forward(batch, features)
        return replace(output, logits=output.logits * 1.1)


@breaks("test_passes_agree")
@with_form
class WrongAfterCachedRows(RightForm):
    """The pass at load has none."""

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        output = super().forward(batch, features)
        is_wrong = batch.segments[0].num_cached > 20
        return replace(output, logits=output.logits.roll(1, -1)) if is_wrong else output


@breaks("test_passes_agree")
@with_form
class RaisesInALongPass(RightForm):
    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        if len(batch.token_ids) > 16:
            raise IndexError("too many rows")
        return super().forward(batch, features)


@breaks("test_requests_do_not_see_each_other")
@with_form
class LastRequestTwice(RightForm):
    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        output = super().forward(batch, features)
        if len(batch.segments) > 1:
            output.logits[0] = output.logits[-1]
        return output


@breaks("test_trees_agree")
@with_form
class TreesAreChains(RightForm):
    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        chains = [replace(segment, tree_mask=None, depths=None, num_branched=0) for segment in batch.segments]
        return super().forward(replace(batch, segments=chains), features)


@breaks("test_trees_agree")
@with_form
class ForgetsCachedBranches(RightForm):
    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        segments = []
        for segment in batch.segments:
            mask = segment.tree_mask
            if mask is not None and segment.num_branched:
                mask = mask.clone()
                mask[:, : segment.num_branched] = True
            segments.append(replace(segment, tree_mask=mask))
        return super().forward(replace(batch, segments=segments), features)


@breaks("test_logits_are_those_of_the_rows_asked_for")
@with_form
class RowsInOrder(RightForm):
    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        rows = None if batch.logits_rows is None else batch.logits_rows.sort().values
        return super().forward(replace(batch, logits_rows=rows), features)


@breaks("test_hidden_states_agree")
@with_form
class StatesOneRowLate(RightForm):
    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        output = super().forward(batch, features)
        states = output.hidden_states
        return output if states is None else replace(output, hidden_states=states.roll(1, 0))


@breaks("test_hidden_states_agree")
@with_form
class NoLayers(RightForm):
    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        return replace(super().forward(batch, features), aux_hidden_states=())


@breaks("test_passes_may_alternate_with_the_own_forward")
@with_form
class RowsOfItsOwn(RightForm):
    """Keeps keys in a layout of its own: here, negated."""

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        self._negate()
        output = super().forward(batch, features)
        self._negate()
        return output

    def _negate(self) -> None:
        for keys in self.runner.cache.keys.values():
            keys.neg_()


@breaks("test_a_new_cache_is_used")
@with_form
class KeepsTheFirstCache(RightForm):
    def __init__(self, runner: Runner, inner: Form) -> None:
        super().__init__(runner, inner)
        self._first: torch.Tensor | None = None

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        output = super().forward(batch, features)
        keys = self.runner.cache.keys[0]
        if self._first is None or len(self._first) <= 16:  # that of the probe
            self._first = keys
        if keys is not self._first:
            keys.zero_()
        return output


@breaks("test_invariant_rows_keep_their_bits")
@with_form
class SaysInvariant(RightForm):
    is_invariant = True

    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        output = super().forward(batch, features)
        return replace(output, logits=output.logits * (1 + 3e-7 * (len(batch.token_ids) % 7)))


@breaks("test_counters_count")
@with_form
class CountsDown(RightForm):
    def counts(self) -> dict[str, int]:
        return {"left": 1000 - self.num_passes}


class HasChain(RightForm):
    """A form with another draft loop."""

    chain_class: type[RightChain]

    @property
    def chain(self) -> RightChain | None:
        return self.chain_class(self.runner) if self.runner.is_draft else None


def with_chain(chain_class: type[RightChain]) -> type[Right]:
    """Return a backend with another draft loop, named like it."""
    form_class = type("Chained", (HasChain,), {"chain_class": chain_class})
    return type(chain_class.__name__, (Right,), {"form_class": form_class})


@breaks("test_chains_agree")
@with_chain
class OneNoiseForAll(RightChain):
    """Draws every token with the noise of the first position."""

    def choose(self, probs: torch.Tensor, step: int, work: ChainWork) -> torch.Tensor:
        return super().choose(probs, 0, work)


@breaks("test_chains_agree")
@with_chain
class AlwaysGreedy(RightChain):
    def probs(self, logits: torch.Tensor, temperature: float) -> torch.Tensor:
        return super().probs(logits, 0.0)


@breaks("test_drawn_chains_agree")
@with_chain
class NoiseOfStrict(RightChain):
    def word(self, step: int, *, is_drawn: bool) -> int:
        return node_word(Stream.TARGET)


@breaks("test_drawn_chains_agree")
@with_chain
class ProbsAtTemperatureOne(RightChain):
    def draft(self, logits: torch.Tensor, states: torch.Tensor | None, work: ChainWork) -> Any:
        chains = super().draft(logits, states, work)
        probs = chains.draft_probs.double().sqrt()
        return replace(chains, draft_probs=(probs / probs.sum(-1, keepdim=True)).float())


class BlindToTrees(SdpaAttention):
    def attend(self, layer: int, batch: PackedBatch, *inputs: torch.Tensor, **settings: Any) -> torch.Tensor:
        chains = [replace(segment, tree_mask=None, depths=None, num_branched=0) for segment in batch.segments]
        return super().attend(layer, replace(batch, segments=chains), *inputs, **settings)


@breaks("test_attention_agrees")
class AttendsToOtherBranches(Right):
    attention_class = BlindToTrees


def without(setting: str) -> type[SdpaAttention]:
    """Return an attention that ignores a setting."""

    class Ignoring(SdpaAttention):
        def attend(
            self, layer: int, batch: PackedBatch, *inputs: torch.Tensor, **settings: Any
        ) -> torch.Tensor:
            return super().attend(layer, batch, *inputs, **settings | {setting: None})

    return Ignoring


@breaks("test_attention_follows_windows_caps_and_sinks")
class NoWindow(Right):
    attention_class = without("window")


@breaks("test_attention_follows_windows_caps_and_sinks")
class NoSoftcap(Right):
    attention_class = without("softcap")


@breaks("test_attention_follows_windows_caps_and_sinks")
class NoSinks(Right):
    attention_class = without("sinks")


@breaks("test_products_agree")
class ForgetsTheBias(Right):
    def linear(self, module: nn.Linear) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: nn.functional.linear(x, module.weight)


@breaks("test_products_agree")
class AlwaysFloat32(Right):
    def linear(self, module: nn.Linear) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: module(x).float()


class LastOfEqual(TorchRows):
    def best_ids(self, logits: torch.Tensor) -> list[int]:
        return [logits.shape[1] - 1 - best for best in super().best_ids(logits.flip(-1))]


@breaks("test_rows_of_logits_agree")
class TiesGoToTheHighestId(Right):
    rows_class = LastOfEqual


class EveryRowIsValid(TorchRows):
    def valid_rows(self, logits: torch.Tensor) -> torch.Tensor | None:
        return None


@breaks("test_rows_of_logits_agree")
class MissesNaN(Right):
    rows_class = EveryRowIsValid


class OnlyHeats(TorchRows):
    def truncated(self, logits: torch.Tensor, settings: Any) -> torch.Tensor:
        return self.scaled(logits, settings[0, 0])


@breaks("test_rows_of_logits_agree")
class ForgetsTopP(Right):
    rows_class = OnlyHeats


class UnsignedSeeds(TorchRows):
    def multinomial(self, weights: torch.Tensor, seeds: Any, *keys: Any) -> torch.Tensor:
        return super().multinomial(weights, abs(seeds), *keys)


@breaks("test_noise_is_cores")
class DropsTheSignOfASeed(Right):
    rows_class = UnsignedSeeds


class OtherUniforms(TorchRows):
    def uniforms(self, *keys: Any) -> torch.Tensor:
        return 1 - super().uniforms(*keys)


@breaks("test_noise_is_cores")
class TurnsUniformsRound(Right):
    rows_class = OtherUniforms


class Decides(Right):
    """Changes the verdict of core's sampler."""

    def verifier(self, sampler: str, device: torch.device) -> Verify | Declined:
        own = super().verifier(sampler, device)
        if isinstance(own, Declined):
            return own

        def verify(scores: Scores, batch: VerifyBatch) -> Verdict | None:
            verdict = own(scores, batch)
            assert verdict is not None
            return self.changed(verdict, scores, batch)

        return verify

    def changed(self, verdict: Verdict, scores: Scores, batch: VerifyBatch) -> Verdict | None:
        raise NotImplementedError


@breaks("test_verdicts_are_those_of_core")
class RejectsTheLastOfATree(Decides):
    def changed(self, verdict: Verdict, scores: Scores, batch: VerifyBatch) -> Verdict | None:
        if batch.parents is None:
            return verdict
        nodes = [list(row)[:-1] for row in verdict.accepted_nodes]
        tokens = [
            [*list(row)[: len(kept)], list(row)[-1]]
            for row, kept in zip(verdict.token_ids, nodes, strict=True)
        ]
        return Verdict(nodes, tokens)


class UncutVerify:
    cuts = True

    def __init__(self, own: Verify) -> None:
        self._own = own

    def __call__(self, scores: Scores, batch: VerifyBatch) -> Verdict | None:
        return self._own(replace(scores, is_cut=True), batch)


@breaks("test_verdicts_are_those_of_core")
class ForgetsTopKAndTopP(Right):
    def verifier(self, sampler: str, device: torch.device) -> Verify | Declined:
        own = super().verifier(sampler, device)
        return own if isinstance(own, Declined) else UncutVerify(own)


@breaks("test_verdicts_are_those_of_core")
class OneTokenFurtherInALargeVocabulary(Decides):
    def changed(self, verdict: Verdict, scores: Scores, batch: VerifyBatch) -> Verdict | None:
        if scores.logits.shape[1] < 5000:
            return verdict
        tokens = [[*list(row)[:-1], row[-1] ^ 1] for row in verdict.token_ids]
        return Verdict(verdict.accepted_nodes, tokens)


@breaks("test_the_text_is_that_of_core_alone")
@with_form
class TiresWithTime(RightForm):
    def forward(self, batch: PackedBatch, features: torch.Tensor | None) -> ForwardOutput:
        output = super().forward(batch, features)
        return replace(output, logits=output.logits.roll(1, -1)) if self.num_passes > 15 else output
