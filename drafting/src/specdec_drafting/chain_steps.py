"""Drafts chains on a device, where no step needs a cache, without reading their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from specdec.interfaces import PassMemory, ProposeBatch, TargetInfo
from specdec_drafting.chains import ChainLoop, example_of
from specdec_drafting.drafting_config import DraftingConfig
from specdec_drafting.partial_draft import PartialDraft
from specdec_drafting.vocabulary import DraftVocabulary
from specdec_kernels import can_record

if TYPE_CHECKING:
    from specdec_kernels.cuda.graphs import StepGraphs, Steps


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
    """Drafts with recorded steps where a batch and a configuration allow it: on a device, with the kernels, without grammars.

    Args:
        config: how tokens are chosen.
        vocabulary: the ids that may be drafted.
        num_logits: number of logits of the draft.
        info: the target.
        table: see `TargetHandle.pass_memory`.
    """

    def __init__(
        self,
        config: DraftingConfig,
        vocabulary: DraftVocabulary,
        num_logits: int,
        info: TargetInfo,
        table: PassMemory,
    ) -> None:
        self._table = table
        self._config, self._vocabulary, self._info = config, vocabulary, info
        self._num_logits = num_logits
        threshold, ends = config.draft_confidence_threshold, info.eos_token_ids
        self._loop = ChainLoop(
            config.draft_sample_method, vocabulary, num_logits, threshold, ends, siblings=config.tree_top_k
        )
        self._graphs: StepGraphs | None = None

    def prepare(self, steps: Steps, given: torch.Tensor, most_steps: int) -> None:
        """Record the drafts that will be asked for.

        Args:
            steps: gives logits.
            given: `[...]` what a request begins with, for sizes, dtype and device.
            most_steps: the longest chain that there are steps for.
        """
        config, rules = self._config, self._loop.rules
        if not self._loop.is_possible or not can_record(self._info):
            return
        from specdec_kernels.cuda.graphs import CudaRecorder, StepGraphs

        self._graphs = StepGraphs(steps, CudaRecorder(given.device), given, self._table)
        num_steps = min(-(-config.num_speculative_tokens // rules.siblings), most_steps)
        with torch.inference_mode():
            self._graphs.prepare(self._info.max_num_seqs, example_of(num_steps, rules))

    def prepare_logits(self, dtype: torch.dtype) -> None:
        """Record drafts from logits `[K, Vd]` of this dtype, all of which are given."""
        size = self._config.num_speculative_tokens, self._num_logits
        self.prepare(_GivenLogits(), torch.empty(size, dtype=dtype, device=self._info.device), size[0])

    def draft(
        self, batch: ProposeBatch, drafts: Sequence[PartialDraft], given: Sequence[torch.Tensor]
    ) -> bool:
        """Fill empty drafts from what is given of each; returns False, with nothing done, if that is not possible."""
        graphs = self._graphs
        if graphs is None or not self._loop.can_draft(batch, drafts, graphs.max_rows, is_recorded=True):
            return False
        last = self._vocabulary.to_draft(np.array([batch.token_ids(draft.row)[-1] for draft in drafts]))
        texts = [0] * len(drafts), [batch.num_tokens[draft.row] for draft in drafts]
        self._loop.draft(batch, drafts, partial(graphs.draft, last, given), texts, has_room=True)
        return True
