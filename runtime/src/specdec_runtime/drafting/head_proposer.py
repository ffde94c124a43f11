"""The base class of proposers that run a head on the target's hidden states."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from specdec import ConfigError
from specdec.interfaces import Capability, Draft, ProposeBatch, ProposerConfig, TargetHandle
from specdec_runtime.drafting.acceptance_watch import AcceptanceWatch
from specdec_runtime.drafting.drafter import DraftModule
from specdec_runtime.drafting.head_config import HeadConfig
from specdec_runtime.drafting.proposer import DraftingProposer
from specdec_runtime.drafting.vocabulary import equal_vocabulary, reduced_vocabulary
from specdec_runtime.interfaces.head import DraftHead
from specdec_runtime.loading import check_rope


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
