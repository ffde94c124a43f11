"""The configuration keys of `medusa`."""

from __future__ import annotations

from specdec_plugin_mlp.config import StateHeadsConfig


class MedusaConfig(StateHeadsConfig):
    """Keys of `StateHeadsConfig`; `num_speculative_tokens` defaults to the number of heads in `config.json`."""
