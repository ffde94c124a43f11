"""`medusa`: heads that predict independently of each other."""

from __future__ import annotations

from typing import ClassVar

from specdec.interfaces import ProposerConfig
from specdec_plugin_mlp.heads import Heads
from specdec_plugin_mlp.layout import check_target
from specdec_plugin_mlp.medusa.checkpoint import load_medusa, read_layout
from specdec_plugin_mlp.medusa.config import MedusaConfig
from specdec_plugin_mlp.proposer import StateHeadsProposer
from specdec_plugin_mlp.readings import MedusaReadings
from specdec_runtime.drafting import DraftVocabulary, HeadCheckpoint, equal_vocabulary, reduced_vocabulary
from specdec_runtime.drafting.checking import HeadReadings


class MedusaProposer(StateHeadsProposer):
    """Drafts with Medusa heads (Cai et al., arXiv 2401.10774), in the originally published layout or the one vLLM reads.

    A head does not see the tokens of earlier heads; under a grammar its logits are still masked according to them.
    """

    name: ClassVar[str] = "medusa"
    Config: ClassVar[type[ProposerConfig]] = MedusaConfig
    Readings: ClassVar[type[HeadReadings]] = MedusaReadings

    def read(self, checkpoint: HeadCheckpoint) -> tuple[Heads, DraftVocabulary]:
        """Return as many heads as drafts are deep, and the ids that they can draft.

        Raises:
            ModelError: if the checkpoint is damaged or of another kind.
            ConfigError: if it was made for another target.
        """
        target, config = self.target_info, self._config
        layout = read_layout(checkpoint)
        check_target(checkpoint.path, target, vocab_size=layout.vocab_size, hidden_size=layout.hidden_size)
        depth = -(-config.num_speculative_tokens // config.tree_top_k)
        heads, token_map = load_medusa(checkpoint, max_heads=depth, dtype=target.dtype, device=target.device)
        if token_map is None:
            return heads, equal_vocabulary(target.vocab_size, layout.num_logits, target.device)
        return heads, reduced_vocabulary(token_map.numpy(), target.vocab_size, target.device)
