"""Ways to break sampling parameters: patches on the package's own code, each of which some check must catch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from specdec import SamplingParams
from specdec.engine import Sequence as Sample
from specdec.engine import Step
from specdec.engine.sequence import StopChecker
from specdec.interfaces import FinishReason, RowBlock, VerifyBatch
from specdec.logits import p_logits
from specdec.logits.logprobs import listings
from specdec_runtime.structured_outputs.state import MatcherState

Mutate = Callable[[pytest.MonkeyPatch], None]
SCORER = "specdec_runtime.scorers.transformers.p_logits_of"


def _plain(block: RowBlock) -> RowBlock:
    """The block of a request that asks for nothing."""
    params = SamplingParams(temperature=1.0)
    return replace(block, params=params, rules=None)


def ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        SCORER,
        lambda blocks, *_, **__: (lambda logits: p_logits(logits, [_plain(block) for block in blocks]), True),
    )


def ignored_at_drafted_nodes(patch: pytest.MonkeyPatch) -> None:
    def mutant(blocks: Sequence[RowBlock], logits: torch.Tensor) -> torch.Tensor:
        right = p_logits(logits, blocks)
        wrong = p_logits(logits, [_plain(block) for block in blocks])
        start = 0
        for block in blocks:
            wrong[start] = right[start]
            start += block.num_rows
        return wrong

    patch.setattr(SCORER, lambda blocks, *_, **__: (partial(mutant, blocks), True))


def drafted_path_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RowBlock, "paths", lambda self: [()] * self.num_rows)


def grammar_stands_still(patch: pytest.MonkeyPatch) -> None:
    whole = MatcherState.mask

    def mutant(self: MatcherState, logits: torch.Tensor, nodes: Any, parents: Any) -> None:
        masked = logits.clone()
        whole(self, masked, nodes, parents)
        logits.masked_fill_(masked[:1] == -torch.inf, -torch.inf)

    patch.setattr(MatcherState, "mask", mutant)


def no_stops(patch: pytest.MonkeyPatch) -> None:
    def mutant(self: StopChecker, sequence: Sample, token_ids: list[int]) -> list[int]:
        kept = token_ids[: sequence.max_num_tokens - sequence.num_tokens]
        if len(kept) == sequence.max_num_tokens - sequence.num_tokens:
            sequence.finish_reason = FinishReason.LENGTH
        return kept

    patch.setattr(StopChecker, "accept", mutant)


def stops_at_the_last_token_only(patch: pytest.MonkeyPatch) -> None:
    right = StopChecker.accept

    def mutant(self: StopChecker, sequence: Sample, token_ids: list[int]) -> list[int]:
        kept = token_ids[: sequence.max_num_tokens - sequence.num_tokens]
        if self._stops:
            assert self._stream is not None
            self.text += "".join(self._stream.push(token_id) for token_id in kept[:-1])
            self._first_stop = len(self.text)
        sequence.max_num_tokens -= len(kept) - 1
        right(self, sequence, kept[-1:])
        sequence.max_num_tokens += len(kept) - 1
        return kept

    patch.setattr(StopChecker, "accept", mutant)


def one_token_too_many(patch: pytest.MonkeyPatch) -> None:
    right = Sample.__init__

    def mutant(self: Sample, *args: Any, max_num_tokens: int, **keys: Any) -> None:
        right(self, *args, max_num_tokens=max_num_tokens + 1, **keys)

    patch.setattr(Sample, "__init__", mutant)


def _with_batch(patch: pytest.MonkeyPatch, change: Callable[[VerifyBatch], VerifyBatch]) -> None:
    right = Step.verify_batch
    patch.setattr(Step, "verify_batch", lambda *given: change(right(*given)))


def samples_share_their_noise(patch: pytest.MonkeyPatch) -> None:
    _with_batch(patch, lambda batch: replace(batch, sample_indices=[0] * len(batch.seeds)))


def noise_of_the_place_in_the_batch(patch: pytest.MonkeyPatch) -> None:
    _with_batch(patch, lambda batch: replace(batch, seeds=list(range(len(batch.seeds)))))


def of_the_row_before(patch: pytest.MonkeyPatch) -> None:
    def wrong(logits: torch.Tensor, *rest: Any) -> Any:
        return listings(logits.roll(1, 0) + _slant(logits), *rest)

    for module in ("specdec.logits.logprobs", "specdec.engine.commit"):
        patch.setattr(f"{module}.listings", wrong)


def _slant(logits: torch.Tensor) -> torch.Tensor:
    """A little that depends on the id, so that a single row is wrong as well."""
    return 0.01 * torch.arange(logits.shape[-1], device=logits.device)


MUTANTS: dict[str, Mutate] = {
    "ignored": ignored,
    "ignored at drafted nodes": ignored_at_drafted_nodes,
    "drafted path forgotten": drafted_path_forgotten,
    "grammar stands still": grammar_stands_still,
    "no stops": no_stops,
    "stops at the last token only": stops_at_the_last_token_only,
    "one token too many": one_token_too_many,
    "samples share their noise": samples_share_their_noise,
    "noise of the place in the batch": noise_of_the_place_in_the_batch,
    "of the row before": of_the_row_before,
}
