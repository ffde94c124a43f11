"""`draft_model`: a smaller causal language model proposes."""

from __future__ import annotations

from typing import ClassVar

from specdec.interfaces import ProposerConfig, TargetHandle
from specdec_plugin_draft_model.config import DraftModelConfig
from specdec_plugin_draft_model.mask_token import mask_token
from specdec_plugin_draft_model.tokenizers import choose_vocabulary
from specdec_runtime.drafting import DraftingProposer, DraftModule


class DraftModelProposer(DraftingProposer):
    """Speculative decoding with a draft model (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318).

    Parallel drafting with mask tokens is as in PARD (arXiv 2504.18583).
    """

    name: ClassVar[str] = "draft_model"
    Config: ClassVar[type[ProposerConfig]] = DraftModelConfig

    def load_module(self, target: TargetHandle) -> DraftModule:
        """Return the draft, and the vocabulary that it shares with the target."""
        config = self.config
        assert isinstance(config, DraftModelConfig) and config.model is not None
        model = target.load_model(
            config.model,
            revision=config.revision,
            dtype=config.dtype,
            quantization=config.quantization,
            tensor_parallel_size=config.draft_tensor_parallel_size,
        )
        text_config = model.config.get_text_config()
        num_logits = getattr(model.get_output_embeddings(), "out_features", 0) or text_config.vocab_size
        max_len = config.max_model_len or target.info.max_model_len
        return DraftModule(
            model,
            choose_vocabulary(config, target, num_logits),
            num_logits,
            min(max_len, getattr(text_config, "max_position_embeddings", None) or max_len),
            mask_token(model.config, num_logits, config.model) if config.parallel_drafting else None,
        )
