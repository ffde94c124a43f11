"""What is left of drafts from older text, found where vLLM's V2 model runner has the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from specdec.engine import aligned
from specdec.interfaces import PADDING_ID, sent_together
from specdec_vllm.v2.unread import LateDraft


def left_of(
    late: Sequence[LateDraft],
    last: Sequence[int],
    lines: Sequence[int],
    most: Sequence[int],
    states: Any,
    width: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what is left of drafts, `[B, width]` int64, with each text's last token behind; and the lines `[B]`.

    The host sends once and waits for nothing.

    Args:
        late: of each request.
        last: `[B]` the last token that each draft follows.
        lines: `[B]` each request's line in vLLM's state.
        most: `[B]` the most tokens that may have been emitted since.
        states: vLLM's `RequestState`.
        width: number of tokens to return.
    """
    num_columns = 1 + max(most)
    longest = max(num_columns + width, 1 + max(len(draft.token_ids) for draft in late))
    drafts = np.full((len(late), longest), PADDING_ID, np.int64)
    for place, draft, before in zip(drafts, late, last, strict=True):
        place[: 1 + len(draft.token_ids)] = (before, *draft.token_ids)
    numbers = [[draft.num_tokens for draft in late], [1 + len(draft.token_ids) for draft in late], [*lines]]
    there = sent_together([drafts, np.array(numbers)], states.last_sampled_tokens.device)
    drafts_there, (known, lengths, lines_there) = there
    texts, ends = states.all_token_ids.gpu, states.total_len.gpu[lines_there].to(torch.int64)
    # The last known token is column 0, so that a text to which nothing was added has a last one too.
    columns = torch.arange(num_columns, device=texts.device)
    places = (known[:, None] - 1 + columns).clamp(max=texts.shape[1] - 1)
    emitted = texts[lines_there[:, None], places].to(torch.int64)
    num_since = (ends - known).clamp(0, num_columns - 1)
    return aligned(drafts_there, lengths, emitted, num_since, width), lines_there
