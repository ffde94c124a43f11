"""What backends offer to a runner: forms of its module, attention, products; each is compared with torch's before use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec_runtime.backends.attention import choose_attention
    from specdec_runtime.backends.comparison import FACTOR, agreement, distance
    from specdec_runtime.backends.linears import (
        fast_linear,
        has_native_bfloat16,
        reads_blocks,
        speed_up_linears,
    )
    from specdec_runtime.backends.models import of_models

__all__ = [
    "FACTOR",
    "agreement",
    "choose_attention",
    "distance",
    "fast_linear",
    "has_native_bfloat16",
    "of_models",
    "reads_blocks",
    "speed_up_linears",
]

__getattr__ = lazily(__name__)
