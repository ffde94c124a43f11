"""`self`: a cheaper form of the target proposes."""

from __future__ import annotations

import logging
from functools import partial
from typing import ClassVar

from torch import nn

from specdec.interfaces import Capability, ProposerConfig, TargetHandle
from specdec_plugin_self_draft.config import SelfDraftConfig
from specdec_plugin_self_draft.form import cheaper
from specdec_plugin_self_draft.short_head import frequent_ids, is_tied
from specdec_runtime.drafting import (
    DraftingProposer,
    DraftModule,
    OwnIds,
    equal_vocabulary,
    reduced_vocabulary,
)
from specdec_runtime.interfaces import QuantizedLinear

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
        vocabulary = equal_vocabulary(info.vocab_size, info.vocab_size, info.device)
        size = config.draft_vocab_size
        if size is None and (info.device.type != "cpu" or type(target.lm_head) is not nn.Linear):
            size = info.vocab_size
        is_chain_without_q = not config.is_tree and config.draft_sample_method != "probabilistic"
        names_own = (
            info.device.type == "cpu" and is_chain_without_q and is_tied(target.lm_head, target.embed_tokens)
        )
        drafted_ids = frequent_ids(size, info.vocab_size, target.tokenizer, names_own_ids=names_own)
        if drafted_ids is not None:
            logger.info("self: drafts name %d of the target's %d ids", len(drafted_ids), info.vocab_size)
            vocabulary = reduced_vocabulary(drafted_ids, info.vocab_size, info.device)
        own_ids = OwnIds(drafted_ids, info.vocab_size) if drafted_ids is not None and names_own else None
        make_form = partial(
            cheaper,
            config=config,
            tokenizer=target.tokenizer,
            drafted_ids=drafted_ids,
            is_kept=self._lacking is None,  # those of a step of training are not met again
        )
        runner = target.make_target_runner(make_form)
        has_loop = runner.chain is not None and runner.chain.max_new_rows > 0
        rounded = [linear for linear in runner.module.modules() if isinstance(linear, QuantizedLinear)]
        widened = [linear for linear in rounded if "forward" not in vars(linear)]
        if widened and not has_loop:
            logger.warning(
                "self: torch widens %d of %d rounded weights in every call here, so that a draft takes longer than the target "
                "alone would: compiled drafts are for models with a compiled form on the CPU, products with rounded weights "
                "for bfloat16, both with specdec-kernels",
                len(widened), len(rounded),
            )  # fmt: skip
        is_compiled = info.device.type == "cpu" and has_loop
        has_margin = is_compiled and is_chain_without_q and not config.has_confidence
        return DraftModule(
            runner.module,
            vocabulary,
            vocabulary.num_ids,
            min(config.max_model_len or info.max_model_len, info.max_model_len),
            target_runner=runner,
            own_ids=own_ids,
            margin=config.draft_margin if has_margin else 0.0,
        )
