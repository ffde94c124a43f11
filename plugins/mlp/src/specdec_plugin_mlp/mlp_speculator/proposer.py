"""`mlp_speculator`: each head is conditioned on the previous token."""

from __future__ import annotations

from typing import ClassVar

from specdec.interfaces import ProposerConfig
from specdec_plugin_mlp.heads import Heads
from specdec_plugin_mlp.layout import check_target
from specdec_plugin_mlp.mlp_speculator.checkpoint import load_mlp_speculator
from specdec_plugin_mlp.mlp_speculator.config import MLPSpeculatorConfig
from specdec_plugin_mlp.mlp_speculator.layout import MLPSpeculatorLayout
from specdec_plugin_mlp.proposer import StateHeadsProposer
from specdec_plugin_mlp.readings import MLPSpeculatorReadings
from specdec_runtime.drafting import DraftVocabulary, HeadCheckpoint, equal_vocabulary
from specdec_runtime.drafting.checking import HeadReadings


class MLPSpeculatorProposer(StateHeadsProposer):
    """Drafts with an MLP speculator (Wertheimer et al., arXiv 2404.19124) in the published format."""

    name: ClassVar[str] = "mlp_speculator"
    aliases: ClassVar[tuple[str, ...]] = ("mlp",)
    Config: ClassVar[type[ProposerConfig]] = MLPSpeculatorConfig
    Readings: ClassVar[type[HeadReadings]] = MLPSpeculatorReadings

    def read(self, checkpoint: HeadCheckpoint) -> tuple[Heads, DraftVocabulary]:
        """Return the heads; their vocabulary is exactly the target's.

        Raises:
            ModelError: if the checkpoint is damaged or of another kind.
            ConfigError: if it was made for another target.
        """
        target = self.target_info
        layout = MLPSpeculatorLayout.read(checkpoint)
        check_target(checkpoint.path, target, vocab_size=layout.vocab_size, hidden_size=layout.emb_dim)
        heads = load_mlp_speculator(checkpoint, dtype=target.dtype, device=target.device)
        return heads, equal_vocabulary(target.vocab_size, layout.vocab_size, target.device)
