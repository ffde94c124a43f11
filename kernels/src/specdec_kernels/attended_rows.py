"""Which cached rows the layers of a proposer's module attend to."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

ATTENDED_ROWS = "attended_rows"
"""Attribute of attention modules."""


@dataclass(frozen=True)
class AttendedRows:
    """The first rows of a context and the newest ones, as in StreamingLLM (arXiv 2309.17453).

    Compiled passes on the CPU keep to it; other forms of a module attend to all rows, which is slower and no less exact.
    """

    first: int
    """At most 16."""
    newest: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= 16:
            raise ValueError(f"first={self.first}: 0 to 16 rows")

    def set_in(self, layers: nn.ModuleList) -> None:
        """Let layers of transformers attend to these rows; a target's own layers must not."""
        for layer in layers:
            setattr(layer.self_attn, ATTENDED_ROWS, self)
