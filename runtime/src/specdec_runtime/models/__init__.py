"""What the engine must know of a `transformers` model: its parts, the devices they are on, layers that keep states."""

from specdec_runtime.models.parts import (
    CACHE_ARGUMENTS,
    cache_argument,
    decoder_layers,
    has_blocks,
    input_embedding,
    output_head,
)
from specdec_runtime.models.state_layers import keeps_states
from specdec_runtime.models.unfilled import unfilled

__all__ = [
    "CACHE_ARGUMENTS",
    "cache_argument",
    "decoder_layers",
    "has_blocks",
    "input_embedding",
    "keeps_states",
    "output_head",
    "unfilled",
]
