"""The configuration keys of `mlp_speculator`."""

from __future__ import annotations

from pydantic import Field

from specdec_plugin_mlp.config import StateHeadsConfig


class MLPSpeculatorConfig(StateHeadsConfig):
    """Keys of `StateHeadsConfig`; `num_speculative_tokens` defaults to the checkpoint's `n_predict`."""

    num_speculative_tokens: int = Field(
        default=3,  # as in the published configuration class, which omits defaults from config.json
        ge=1,
        description="The most nodes drafted per request and step; `n_predict` of the checkpoint where left out.",
    )
