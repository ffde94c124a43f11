"""What backends offer in place of torch: core asks them, compares each offer with its own code, and chooses.

`row_operations` and `verifiers` are for the `Backend` methods of these names; `offers` asks the backends in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.backends.offers import Rejected, first_offer, grouped_warnings, tried

__all__ = ["Rejected", "first_offer", "grouped_warnings", "tried"]

__getattr__ = lazily(__name__)
