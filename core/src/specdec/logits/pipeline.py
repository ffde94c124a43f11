"""p-logits, the input of the samplers: rules, then temperature, then truncation by min-p, top-k and top-p."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import numpy as np
import torch

from specdec.interfaces.row_block import RowBlock
from specdec.interfaces.row_operations import Floats
from specdec.interfaces.sampler import VerifyBatch
from specdec.interfaces.scorer import Scores
from specdec.interfaces.sent import Transfer, sent
from specdec.logits.rules.request_rules import RequestRules
from specdec.noise import row_operations
from specdec.sampling_params import SamplingParams

Change = Callable[[torch.Tensor], torch.Tensor]
"""Returns changed logits."""


def p_logits(logits: torch.Tensor, blocks: Sequence[RowBlock]) -> torch.Tensor:
    """Return p-logits `[R, V]` in float32; forbidden ids are -inf. `logits` is not written to.

    Args:
        logits: `[R, V]` the target's logits.
        blocks: one per request, in the order of the rows.
    """
    change, _ = p_logits_of(blocks, logits.shape[-1], logits.device)
    return logits.float() if change is None else change(logits)


def p_logits_of(
    blocks: Sequence[RowBlock],
    vocab_size: int,
    device: torch.device,
    transfer: Transfer | None = None,
    *,
    is_cut: bool = True,
) -> tuple[Change | None, bool]:
    """Return what makes p-logits, once, of logits that a pass will give, None if these are it, in float32; and `Scores.is_cut`.

    See `p_logits` and `RequestRules.changes`. With `is_cut` false top-k and top-p are left to the sampler.
    """
    params = [block.params for block in blocks]
    change: Change | None = None
    settings: Floats | None = None
    if any(block.rules for block in blocks):
        indices = zip(blocks, accumulate(block.num_rows for block in blocks), strict=True)
        ruled = [(slice(end - block.num_rows, end), block) for block, end in indices if block.rules]
        change = RequestRules.changes(ruled, vocab_size, device, transfer)
    if not all(p.is_greedy for p in params):
        settings = _by_row(params, [block.num_rows for block in blocks], vocab_size)
        uncut = _with(settings, 2, vocab_size, 1.0)
        is_cut = is_cut or bool((settings == uncut).all())
        settings = settings if is_cut else uncut
        if transfer is not None:
            row_operations(device).send_with(transfer, settings)
    is_same = change is None and settings is None
    return None if is_same else partial(_changed, change, settings), is_cut or settings is None


def _changed(change: Change | None, settings: Floats | None, logits: torch.Tensor) -> torch.Tensor:
    out = logits.float() if change is None else change(logits.float())
    return out if settings is None else _truncated(out, settings)


def with_cuts(scores: Scores, batch: VerifyBatch) -> Scores:
    """Return the scores of a batch with top-k and top-p applied."""
    if scores.is_cut:
        return scores
    rows = [1 + count for count in batch.num_nodes]
    settings = _by_row(list(batch.sampling_params), rows, scores.logits.shape[-1])
    settings = _with(settings, 0, settings[0] > 0.0, 0.0)  # as temperature and min-p are applied
    return replace(scores, logits=_truncated(scores.logits, settings), is_cut=True)


def apply_temperature_and_truncation(
    logits: torch.Tensor, params: list[SamplingParams], rows: list[int]
) -> torch.Tensor:
    """Apply temperature, min-p, top-k and top-p to logits `[R, V]`: ids without probability become -inf. `logits` is kept.

    The order is vLLM's: temperature, min-p, top-k, top-p. Greedy rows are unchanged.

    Args:
        logits: `[R, V]` float32.
        params: `[B]`, one per request.
        rows: `[B]` number of consecutive logits rows of each request.
    """
    if all(p.is_greedy for p in params):
        return logits
    return _truncated(logits, _by_row(params, rows, logits.shape[-1]))


def _truncated(logits: torch.Tensor, settings: Floats) -> torch.Tensor:
    operations = row_operations(logits.device)
    at_once = operations.truncated(logits, settings)
    if at_once is not None:
        return at_once
    temperature, min_p, top_k, top_p = _sent(settings, logits.device)
    limits = torch.finfo(logits.dtype)
    if isinstance(temperature, float):
        out = operations.scaled(logits, min(max(temperature, limits.tiny), limits.max))
    else:
        out = operations.scaled_rows(logits, temperature.clamp(limits.tiny, limits.max))
    if settings[1].any():
        # p / p_max >= min_p, in logs; equal for the best id itself.
        floor = out.amax(-1, keepdim=True) + torch.as_tensor(min_p).log()
        out = out.masked_fill(out < floor, -torch.inf)
    if (settings[2] < logits.shape[-1]).any():
        out = _keep_top_k(out, top_k, settings[2])
    if (settings[3] < 1.0).any():
        out = operations.keep_top_p(out, top_p, settings[2].astype(np.int64))
    return torch.where(torch.as_tensor(temperature) > 0.0, out, logits) if (settings[0] <= 0.0).any() else out


def _by_row(params: list[SamplingParams], rows: list[int], vocab_size: int) -> Floats:
    """Return temperature, min-p, top-k and top-p of each row, `[4, R]`; those of greedy rows change nothing."""
    table = [
        (0.0, 0.0, vocab_size, 1.0)
        if p.is_greedy
        else (p.temperature, p.min_p, p.top_k if 0 < p.top_k < vocab_size else vocab_size, p.top_p)
        for p in params
    ]
    return np.ascontiguousarray(np.array(table).repeat(rows, 0).T)


def _with(settings: Floats, first: int, *values: float | Floats) -> Floats:
    """Return settings with other values from row `first` on."""
    changed = settings.copy()
    for row, value in enumerate(values, first):
        changed[row] = value
    return changed


def _sent(settings: Floats, device: torch.device) -> list[float | torch.Tensor]:
    """Return each parameter as a number if all rows have the same, else as `[R, 1]` on the device, sent together.

    The temperature is in float64, the others in float32.
    """
    first = settings[:, 0]
    if (settings == first[:, None]).all():
        return [float(value) for value in first]
    columns = sent(torch.from_numpy(settings), device)[:, :, None]
    varied = [columns[0], *columns[1:].float()]
    is_varied = (settings != first[:, None]).any(1)
    return [varied[i] if is_varied[i] else float(first[i]) for i in range(len(first))]


def _keep_top_k(logits: torch.Tensor, k: float | torch.Tensor, counts: Floats) -> torch.Tensor:
    """Keep exactly the k highest; ties at the border go to the lowest ids."""
    vocab_size = logits.shape[-1]
    most = int(counts[counts < vocab_size].max())
    best = logits.topk(most, -1).values
    if isinstance(k, float):
        border = best[..., -1:]
    else:
        border = best.gather(-1, k.long().clamp_max(most) - 1).masked_fill(k >= vocab_size, -torch.inf)
    keep = logits > border
    ties = logits == border
    room = k - keep.sum(-1, keepdim=True)
    keep |= ties & (ties.cumsum(-1) <= room)
    return logits.masked_fill(~keep, -torch.inf)
