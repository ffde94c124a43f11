"""`dflash`: a block-diffusion head drafts from the target's hidden states, all tokens in one pass."""

from __future__ import annotations

import logging
from typing import ClassVar

import numpy as np

from specdec import ConfigError
from specdec.interfaces import Capability, ProposerConfig, TargetHandle, TargetInfo
from specdec_plugin_dflash.config import DFlashConfig
from specdec_plugin_dflash.drafter import BlockDrafter
from specdec_plugin_dflash.loading import load_dflash
from specdec_plugin_dflash.readings import BlockReadings
from specdec_plugin_dflash.settings import DFlashSettings
from specdec_runtime.drafting import (
    AcceptanceWatch,
    HeadCheckpoint,
    RowsProposer,
    equal_vocabulary,
    reduced_vocabulary,
)
from specdec_runtime.drafting.checking import HeadReadings
from specdec_runtime.loading import check_rope

logger = logging.getLogger("specdec")


class DFlashProposer(RowsProposer):
    """DFlash heads (arXiv 2602.06036), and their relatives DFlash2, DSpark, Domino and XPress."""

    name: ClassVar[str] = "dflash"
    aliases: ClassVar[tuple[str, ...]] = ("dflash2", "domino", "dspark", "xpress")
    Config: ClassVar[type[ProposerConfig]] = DFlashConfig
    Readings: ClassVar[type[HeadReadings]] = BlockReadings
    capabilities = RowsProposer.capabilities | {Capability.HIDDEN_STATES, Capability.AUX_HIDDEN_STATES}

    def __init__(self, config: DFlashConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        assert config.model is not None
        self._checkpoint = checkpoint = HeadCheckpoint(config.model, config.revision)
        origin = str(checkpoint)
        self._settings = settings = DFlashSettings.from_dict(
            checkpoint.config,
            origin,
            num_layers=target.num_layers,
            aux_layers=config.aux_layer_ids,
            mask_id=config.mask_token_id,
            predicts_at_anchor=config.sample_from_anchor,
        )
        self.aux_layer_ids = settings.aux_layers
        logger.info("%s: the inputs of the target's layers %s are read", origin, list(settings.aux_layers))
        most = settings.max_tokens * config.tree_top_k
        if config.num_speculative_tokens > most:
            siblings = "" if config.tree_top_k == 1 else f", {config.tree_top_k} candidates each (tree_top_k)"
            raise ConfigError(
                f"speculative_config: 'num_speculative_tokens' = {config.num_speculative_tokens} is more than the "
                f"{settings.max_tokens} tokens of a block of {origin} (block_size {settings.block_size}){siblings}: use {most} "
                "or less"
            )

    def make_drafter(self, target: TargetHandle) -> BlockDrafter:
        """Load the head, and return what drafts with it."""
        config, info = self.config, target.info
        assert isinstance(config, DFlashConfig)
        name = config.model or self.name
        self._watch = AcceptanceWatch(name)
        head = load_dflash(self._checkpoint, target, self._settings)
        check_rope(head.model.config, config.max_model_len or info.max_model_len, name)
        ids = None if head.target_ids is None else head.target_ids.cpu().numpy()
        vocabulary = (
            equal_vocabulary(info.vocab_size, self._settings.num_logits, info.device)
            if ids is None
            else reduced_vocabulary(np.asarray(ids), info.vocab_size, info.device)
        )
        drafter = BlockDrafter(config, head, target.make_runner(head.model), vocabulary, info)
        if not drafter.is_fused:
            logger.warning(
                "%s: its layers have windows, convolutions or views of their own: blocks run layer by layer in torch, without "
                "the compiled pass of the CPU or captured graphs", name,
            )  # fmt: skip
        elif head.stage is not None and info.device.type != "cpu":
            logger.warning(
                "%s: its stage runs behind the pass over the block, so the host waits between them, and steps do not overlap",
                name,
            )
        return drafter
