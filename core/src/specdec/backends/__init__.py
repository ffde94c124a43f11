"""What backends offer in place of torch: core asks them, compares each offer with its own code, and chooses.

There is a file for each `Backend` method; `offers` asks the backends in order, and `comparison` measures rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.backends.attention import choose_attention
    from specdec.backends.comparison import FACTOR, LEAST, agreement, distance
    from specdec.backends.linears import fast_linear, has_native_bfloat16, speed_up_linears

__all__ = [
    "FACTOR",
    "LEAST",
    "agreement",
    "choose_attention",
    "distance",
    "fast_linear",
    "has_native_bfloat16",
    "speed_up_linears",
]

__getattr__ = lazily(__name__)
