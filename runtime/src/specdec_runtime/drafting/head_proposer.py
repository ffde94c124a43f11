"""The base class of proposers that run a head on the target's hidden states."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import Counter
from typing import ClassVar

import numpy as np

from specdec import ConfigError
from specdec.interfaces import Capability, Draft, ProposeBatch, ProposerConfig, TargetHandle
from specdec_runtime.drafting.drafter import DraftModule
from specdec_runtime.drafting.head_config import HeadConfig
from specdec_runtime.drafting.proposer import DraftingProposer
from specdec_runtime.drafting.vocabulary import equal_vocabulary, reduced_vocabulary
from specdec_runtime.interfaces.head import DraftHead
from specdec_runtime.loading import check_rope

logger = logging.getLogger("specdec")

NUM_DRAFTS = 1000
"""Drafts that are counted before the one comparison."""


class AcceptanceWatch:
    """Compares how often the first drafted token is accepted with how often the most frequent token comes next.

    A head whose files are read wrongly (other layers, another norm) still runs, and is accepted less, down to chance.

    Args:
        name: the head, for the message.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._counts: Counter[int] = Counter()
        self._num_drafts = self._num_accepted = 0

    def observe(self, batch: ProposeBatch) -> None:
        """Take in what came of the last drafts, and the tokens after prompts; warns once."""
        if self._num_drafts >= NUM_DRAFTS:
            return
        end = 0
        for row, count in enumerate(batch.counts):
            end += count
            self._num_drafts += batch.last_num_drafted[row] > 0
            self._num_accepted += batch.last_num_accepted[row] > 0
            num_answer = min(count, batch.starts[row] + count - batch.num_prompt_tokens[row])
            if num_answer > 0:
                self._counts.update(batch.new_token_ids[end - num_answer : end].tolist())
        if self._num_drafts < NUM_DRAFTS:
            return
        most, total = max(self._counts.values(), default=0), self._counts.total()
        accepted, frequent = self._num_accepted / self._num_drafts, most / max(1, total)
        if accepted < frequent:
            logger.warning(
                "%s: of %d drafts the first token was accepted in %.1f %%, and always drafting the target's most frequent "
                "token would give %.1f %%: it is a head of another target, or its files are read wrongly (specdec check-head)",
                self._name, self._num_drafts, 100 * accepted, 100 * frequent,
            )  # fmt: skip


class HeadProposer(DraftingProposer):
    """Runs a head on the target's states; a subclass defines how its head is loaded."""

    Config: ClassVar[type[ProposerConfig]] = HeadConfig
    capabilities = DraftingProposer.capabilities | {Capability.HIDDEN_STATES}

    @abstractmethod
    def load_head(self, target: TargetHandle) -> DraftHead:
        """Return the head, on the target's device, in evaluation mode.

        Raises:
            ModelError: if it cannot be loaded.
            ConfigError: if it does not fit the target or the configuration.
        """

    def propose(self, batch: ProposeBatch) -> Draft:
        """See `DraftingProposer.propose`; warns if drafts are worse than chance."""
        self._watch.observe(batch)
        return super().propose(batch)

    def load_module(self, target: TargetHandle) -> DraftModule:
        """Return the head, and the ids that it can draft."""
        config, info = self.config, target.info
        assert isinstance(config, HeadConfig)
        self._watch = AcceptanceWatch(config.model or self.name)
        max_len = config.max_model_len or info.max_model_len
        self._head = head = self.load_head(target)
        check_rope(head.config, max_len, config.model or self.name)
        if config.tree_choices is not None and head.num_stages > 1:
            raise ConfigError(
                f"speculative_config: tree_choices needs a head of one stage, this one has {head.num_stages}: take tree_top_k"
            )
        if head.target_ids is None and head.num_logits >= info.vocab_size:
            vocabulary = equal_vocabulary(info.vocab_size, head.num_logits, info.device)
        else:  # heads read all of the target's ids
            ids = np.arange(head.num_logits) if head.target_ids is None else head.target_ids.cpu().numpy()
            vocabulary = reduced_vocabulary(ids, info.vocab_size, info.device)
        is_special = head.num_stages == 1 and (config.is_dynamic or config.tree_choices is not None)
        return DraftModule(
            head,
            vocabulary,
            head.num_logits,
            max_len,
            mask_id=head.mask_id if config.parallel_drafting else None,
            max_depth=config.tree_depth,
            tree=config if is_special else None,
        )
