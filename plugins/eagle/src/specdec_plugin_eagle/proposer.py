"""`eagle` and `eagle3`: a head drafts from the target's hidden states."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from specdec.interfaces import Capability, ProposerConfig, TargetHandle, TargetInfo
from specdec_plugin_eagle.aux_layers import AuxLayers, layers_read
from specdec_plugin_eagle.config import Eagle3Config, EagleConfig
from specdec_plugin_eagle.loading import load_eagle, load_eagle3
from specdec_plugin_eagle.readings import EagleReadings
from specdec_plugin_eagle.settings import EagleSettings
from specdec_runtime.drafting import HeadCheckpoint, HeadProposer
from specdec_runtime.drafting.checking import HeadReadings
from specdec_runtime.interfaces import DraftHead


class EagleProposer(HeadProposer):
    """EAGLE-1 heads (Li et al., arXiv 2401.15077), with EAGLE-2's trees (arXiv 2406.16858) if configured."""

    name: ClassVar[str] = "eagle"
    Config: ClassVar[type[ProposerConfig]] = EagleConfig
    Readings: ClassVar[type[HeadReadings]] = EagleReadings

    def load_head(self, target: TargetHandle) -> DraftHead:
        """Return the head; see `load_eagle`."""
        assert self.config.model is not None
        return load_eagle(HeadCheckpoint(self.config.model, self.config.revision), target)


class Eagle3Proposer(HeadProposer):
    """EAGLE-3 heads (Li et al., arXiv 2503.01840), and P-EAGLE's with `parallel_drafting`."""

    name: ClassVar[str] = "eagle3"
    Config: ClassVar[type[ProposerConfig]] = Eagle3Config
    Readings: ClassVar[type[HeadReadings]] = EagleReadings
    capabilities = HeadProposer.capabilities | {Capability.AUX_HIDDEN_STATES}

    def __init__(self, config: Eagle3Config, target: TargetInfo) -> None:
        super().__init__(config, target)
        assert config.model is not None
        self._checkpoint = HeadCheckpoint(config.model, config.revision)
        origin = str(self._checkpoint)
        settings = EagleSettings.from_dict(self._checkpoint.config, origin, is_eagle3=True)
        if config.aux_layer_ids is not None:
            settings = replace(settings, aux_layers=AuxLayers(config.aux_layer_ids), uses_aux=True)
        if config.mask_token_id is not None:
            settings = replace(settings, mask_id=config.mask_token_id)
        if config.norm_output is not None:
            settings = replace(settings, is_normed_carry=config.norm_output)
        self._settings = settings
        if settings.uses_aux:
            self.aux_layer_ids = layers_read(settings.aux_layers, target.num_layers, origin)
        else:
            self.capabilities = self.capabilities - {Capability.AUX_HIDDEN_STATES}

    def load_head(self, target: TargetHandle) -> DraftHead:
        """Return the head; see `load_eagle3`."""
        is_parallel = self.config.parallel_drafting
        return load_eagle3(self._checkpoint, target, self._settings, is_parallel=is_parallel)
