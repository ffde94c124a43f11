"""`self`: a cheaper form of the target proposes."""

from __future__ import annotations

import logging
from functools import partial
from typing import ClassVar

from specdec.interfaces import Capability, ProposerConfig, TargetHandle
from specdec_drafting import DraftingProposer, DraftModule, equal_vocabulary
from specdec_plugin_self_draft.config import SelfDraftConfig
from specdec_plugin_self_draft.form import cheaper

logger = logging.getLogger("specdec")


class SelfDraftProposer(DraftingProposer):
    """The target with weights of 8 or 4 bits, or fewer layers, drafts on the target's own cache, as in QuantSpec (arXiv
    2502.10424) and Draft & Verify (arXiv 2309.08168).

    There is no second cache and no prefill of a draft: verification overwrites the rows of drafted tokens with exact ones.
    """

    name: ClassVar[str] = "self"
    Config: ClassVar[type[ProposerConfig]] = SelfDraftConfig
    capabilities = frozenset({Capability.TARGET_CACHE, Capability.DRAFT_PROBS, Capability.TREE})

    def load_module(self, target: TargetHandle) -> DraftModule:
        """Return the form of the target, on its cache."""
        config, info = self.config, target.info
        assert isinstance(config, SelfDraftConfig)
        runner = target.make_target_runner(partial(cheaper, config=config, tokenizer=target.tokenizer))
        if not runner.max_new_rows and config.weights != "own":
            logger.warning(
                "self: torch widens weights of %s in every call here, so that a draft takes longer than the target alone "
                "would: compiled drafts are for models with a compiled form on the CPU, with specdec-kernels",
                config.weights,
            )
        return DraftModule(
            runner.module,
            equal_vocabulary(info.vocab_size, info.vocab_size, info.device),
            info.vocab_size,
            min(config.max_model_len or info.max_model_len, info.max_model_len),
            target_runner=runner,
        )
