"""Drafts chains on a device, where no step needs a cache, without reading their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from specdec.backends import first_offer
from specdec.interfaces import Declined, PassMemory, ProposeBatch, TargetInfo
from specdec_runtime.backends import of_models
from specdec_runtime.drafting.chains import ChainLoop, example_of
from specdec_runtime.drafting.drafting_config import DraftingConfig
from specdec_runtime.drafting.partial_draft import PartialDraft
from specdec_runtime.drafting.vocabulary import DraftVocabulary
from specdec_runtime.interfaces import StepLoop, Steps


class _GivenLogits:
    """Steps of which all logits `[K, Vd]` of a request are given."""

    def begin(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return logits

    def step(
        self, index: int, logits: torch.Tensor, token_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all logits, and those of a step."""
        return logits, logits[:, index]


class ChainSteps:
    """Drafts with recorded steps where a batch and a configuration allow it: with a backend that has them, without grammars.

    Args:
        config: how tokens are chosen.
        vocabulary: the ids that may be drafted.
        num_logits: number of logits of the draft.
        info: the target.
        pass_memory: see `TargetHandle.pass_memory`.
    """

    def __init__(
        self,
        config: DraftingConfig,
        vocabulary: DraftVocabulary,
        num_logits: int,
        info: TargetInfo,
        pass_memory: PassMemory,
    ) -> None:
        self._pass_memory = pass_memory
        self._config, self._vocabulary, self._info = config, vocabulary, info
        self._num_logits = num_logits
        threshold, ends = config.draft_confidence_threshold, info.eos_token_ids
        self._loop = ChainLoop(
            config.draft_sample_method, vocabulary, num_logits, threshold, ends, siblings=config.tree_top_k
        )
        self._recorded: StepLoop | None = None

    def prepare(self, steps: Steps, given: torch.Tensor, most_steps: int) -> None:
        """Record the drafts that will be asked for.

        Args:
            steps: gives logits.
            given: `[...]` what a request begins with, for sizes, dtype and device.
            most_steps: the longest chain that there are steps for.
        """
        config, rules = self._config, self._loop.rules
        if not self._loop.is_possible or not self._info.may_record:
            return
        offered = first_offer(
            "the draft loop",
            lambda backend: of_models(backend).steps(steps, given, self._pass_memory),
            lambda _: None,
        )
        if isinstance(offered, Declined):
            return
        self._recorded = offered
        num_steps = min(-(-config.num_speculative_tokens // rules.siblings), most_steps)
        with torch.inference_mode():
            offered.prepare(self._info.max_num_seqs, example_of(num_steps, rules))

    def prepare_logits(self, dtype: torch.dtype) -> None:
        """Record drafts from logits `[K, Vd]` of this dtype, all of which are given."""
        size = self._config.num_speculative_tokens, self._num_logits
        self.prepare(_GivenLogits(), torch.empty(size, dtype=dtype, device=self._info.device), size[0])

    def draft(
        self, batch: ProposeBatch, drafts: Sequence[PartialDraft], given: Sequence[torch.Tensor]
    ) -> bool:
        """Fill empty drafts from what is given of each; returns False, with nothing done, if that is not possible.

        Nothing is given where the host has not read the last verdict (`ProposeBatch.num_unread`).
        """
        recorded = self._recorded
        if recorded is None or not self._loop.can_draft(batch, drafts, recorded.max_rows, is_recorded=True):
            return False
        last = self._vocabulary.to_draft(np.array([batch.token_ids(draft.row)[-1] for draft in drafts]))
        texts = [0] * len(drafts), [batch.num_tokens[draft.row] for draft in drafts]
        self._loop.draft(batch, drafts, partial(recorded.draft, last, given), texts)
        return True
