"""The sizes of an MLP speculator."""

from __future__ import annotations

from pydantic import Field, model_validator

from specdec_plugin_mlp.layout import Layout


class MLPSpeculatorLayout(Layout):
    """The heads' `config.json`; keys and defaults are those of the published `MLPSpeculatorConfig`."""

    vocab_size: int = Field(32000, gt=0)
    """V: vocabulary size."""
    emb_dim: int = Field(4096, gt=0)
    """H: size of the target's hidden states."""
    inner_dim: int = Field(0, ge=0)
    """Size of the heads' own states; 0 means `emb_dim`."""
    n_predict: int = Field(3, gt=0)
    """Number of heads."""
    tie_weights: bool = False
    """Whether heads share embedding, norm, output, and the projections after the first."""
    scale_input: bool = False
    """Whether the target's states are normalised first."""

    @model_validator(mode="after")
    def _tied_to_something(self) -> MLPSpeculatorLayout:
        if self.tie_weights and self.n_predict < 2:
            raise ValueError("tie_weights needs n_predict of at least 2")
        return self

    @property
    def width(self) -> int:
        """D: size of the heads' own states."""
        return self.inner_dim or self.emb_dim
