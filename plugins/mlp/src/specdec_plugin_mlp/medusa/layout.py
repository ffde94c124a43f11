"""The sizes of Medusa heads."""

from __future__ import annotations

from pydantic import Field, model_validator

from specdec_plugin_mlp.layout import Layout


class MedusaLayout(Layout):
    """Sizes of the heads from `config.json` and the tensors; names are vLLM's."""

    hidden_size: int = Field(gt=0)
    """H: size of the target's hidden states."""
    vocab_size: int = Field(gt=0)
    """V: vocabulary size of the target."""
    truncated_vocab_size: int | None = Field(None, gt=0)
    """V': number of ids that can be drafted; None for all."""
    num_heads: int = Field(gt=0)
    num_hidden_layers: int = Field(1, ge=0)
    """Number of residual layers per head."""
    original_lm_head: bool = False
    """Whether all heads share one output projection."""
    medusa_fc_bias: bool = False
    """Whether the residual layers have a bias."""
    logit_scale: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Factor on the logits."""

    @model_validator(mode="after")
    def _truncated_to_less(self) -> MedusaLayout:
        if self.num_logits > self.vocab_size:
            raise ValueError("truncated_vocab_size is above vocab_size")
        return self

    @property
    def num_logits(self) -> int:
        """Number of logits per head: V' or V."""
        return self.truncated_vocab_size or self.vocab_size
