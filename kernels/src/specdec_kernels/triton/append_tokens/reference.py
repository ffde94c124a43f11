"""The tokens of a verdict behind the committed ones in plain torch: the specification is `RequestTable.append`."""

from __future__ import annotations

import torch

from specdec.interfaces import RequestTable


def append_tokens_reference(
    table: torch.Tensor,
    num_tokens: torch.Tensor,
    lines: torch.Tensor,
    num_accepted: torch.Tensor,
    token_ids: torch.Tensor,
) -> None:
    """Append in place; see `append_tokens`."""
    RequestTable(table, num_tokens).append(lines, num_accepted, token_ids)
