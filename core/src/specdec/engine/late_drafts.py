"""Late drafts: made from text that is one step old, and aligned with the tokens emitted since."""

from __future__ import annotations

import torch


def align_late_drafts(
    token_ids: torch.Tensor,
    num_nodes: torch.Tensor,
    emitted: torch.Tensor,
    num_emitted: torch.Tensor,
    most: torch.Tensor,
    *,
    width: int | None = None,
    allows_correction: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what is left of late drafts once the step they were made beside has emitted its tokens.

    A proposer on the host that drafts for step N + 1 from the text before step N need not wait for the verdict of step N. Such
    a draft begins with a guess of the tokens that step N emits. A row whose guess was right keeps the tokens behind it; any
    other row has no draft. With `allows_correction` the last emitted token, which verification added, may be another one: text
    that is copied often goes on behind a replaced token. More drafts remain then, of which a smaller share is accepted.
    Verification treats the result as any draft, so the output does not depend on it.

    The reference: plain torch on any device, without synchronisation, and with shapes known on the host.

    Args:
        token_ids: `[B, N]` integers: late drafts, chains. To leave k tokens whatever is emitted, a row needs k + k_N + 1,
            where k_N is the number of tokens that step N verifies. Entries behind a row's end, such as -1, are ignored.
        num_nodes: `[B]` lengths of the late drafts, 0 to N; 0 for none.
        emitted: `[B, M]` integers: tokens emitted by step N, accepted ones first. Entries behind a row's end are ignored.
        num_emitted: `[B]`, 0 to M. A row that emitted nothing, as within its prompt, keeps its draft from the first token on.
        most: `[B]` maximum number of tokens of each result, such as k or the room that is left; 0 or less for none.
        width: columns of the result (K), and another maximum of its lengths; None for N.
        allows_correction: whether the last emitted token of a row need not agree.

    Returns:
        drafts `[B, K]` of the dtype of `token_ids`, padded with -1; their lengths `[B]` int64.

    Raises:
        ValueError: if shapes do not belong together, or `width` is negative. Lengths out of range are not noticed: to look at
            them would be to wait for the device.
    """
    _check_shapes(token_ids, num_nodes, emitted, num_emitted, most, width)
    num_columns = token_ids.shape[1]
    width = num_columns if width is None else width
    if not num_columns or not width:
        return token_ids.new_full((len(token_ids), width), -1), torch.zeros_like(num_nodes, dtype=torch.int64)
    num_nodes, num_emitted = num_nodes.long(), num_emitted.long()
    columns = torch.arange(max(num_columns, width), device=token_ids.device)
    common = min(num_columns, emitted.shape[1])
    is_compared = columns[:common] < num_emitted[:, None] - int(allows_correction)
    differs = (token_ids[:, :common] != emitted[:, :common]) & is_compared
    lengths = torch.minimum(num_nodes - num_emitted, most.long()).clamp(0, width)
    lengths = lengths.masked_fill(differs.any(1), 0)
    # Places behind the last column are never kept: `lengths` ends before them.
    places = (num_emitted[:, None] + columns[:width]).clamp(max=num_columns - 1)
    return token_ids.gather(1, places).masked_fill(columns[:width] >= lengths[:, None], -1), lengths


def _check_shapes(
    token_ids: torch.Tensor,
    num_nodes: torch.Tensor,
    emitted: torch.Tensor,
    num_emitted: torch.Tensor,
    most: torch.Tensor,
    width: int | None,
) -> None:
    """Raise the error for shapes that do not belong together."""
    if token_ids.dim() != 2 or emitted.dim() != 2 or len(emitted) != len(token_ids):
        raise ValueError(
            "late drafts and emitted tokens are [B, N] and [B, M], with a row for each request: got "
            f"{list(token_ids.shape)} and {list(emitted.shape)}"
        )
    for name, numbers in (("num_nodes", num_nodes), ("num_emitted", num_emitted), ("most", most)):
        if numbers.shape != token_ids.shape[:1]:
            raise ValueError(
                f"{name} has one number for each of the {len(token_ids)} late drafts: got {list(numbers.shape)}"
            )
    if width is not None and width < 0:
        raise ValueError(f"width is the number of columns of the result: got {width}")
