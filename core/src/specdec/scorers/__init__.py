"""Built-in scorers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.scorers.lending import Lender as Lender

__all__ = [
    "Lender",
]

__getattr__ = lazily(
    __name__,
    {
        "Lender": "lending",
    },
)
