"""Torch in the place of the compiled operators that SGLang's CPU engine calls for drafts; slow, for tests."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, NoReturn

import torch

from sgl_kernel import attention, speculative  # noqa: F401  the former registers operators

__version__ = "0.4.10"
Tensor = torch.Tensor


def _pieces(rows: Tensor, table: Tensor, starts: Tensor, ends: Tensor) -> Iterator[Tensor]:
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=False):
        yield table[row, start:end]


def assign_extend_cache_locs_cpu(
    rows: Tensor, table: Tensor, starts: Tensor, ends: Tensor, out: Tensor, _: int
) -> None:
    """Write `table[row, start:end]` of all requests to `out`, one behind the other."""
    found = torch.cat([*_pieces(rows, table, starts, ends)])
    out[: len(found)] = found.to(out.dtype)


def assign_req_to_token_pool_cpu(
    rows: Tensor, table: Tensor, starts: Tensor, ends: Tensor, source: Tensor, _: int
) -> None:
    """Write the parts of `source` to `table[row, start:end]`."""
    at = 0
    for piece in _pieces(rows, table, starts, ends):
        piece.copy_(source[at : at + len(piece)])
        at += len(piece)


def assign_draft_cache_locs_contiguous_cpu(
    rows: Tensor, table: Tensor, lengths: Tensor, out: Tensor, width: int, topk: int, steps: int
) -> None:
    assign_extend_cache_locs_cpu(rows, table, lengths, lengths + topk * steps, out, width)


def fill_bonus_tokens_cpu(tokens: Tensor, counts: Tensor, bonus: Tensor, width: int) -> None:
    """Write the last of each request's `counts` accepted tokens to `bonus`."""
    last = tokens.view(-1, width).gather(1, counts[:, None].long() - 1)
    bonus.copy_(last[:, 0].to(bonus.dtype))


def fill_accept_out_cache_loc_cpu(accepted: Tensor, locations: Tensor, out: Tensor) -> None:
    """Write the locations of accepted rows, which are not -1, to the front of `out`."""
    found = locations[accepted[accepted >= 0].long()]
    out.view(-1)[: len(found)] = found.to(out.dtype)


def copy_all_layer_kv_cache_cpu(addresses: Tensor, sizes: Tensor, targets: Tensor, sources: Tensor) -> None:
    """In each buffer, at an address and with rows of so many bytes, copy rows from `sources` to `targets`."""
    moves = [(t, s) for t, s in zip(targets.tolist(), sources.tolist(), strict=True) if t != s]
    for address, size in zip(addresses.tolist(), sizes.tolist(), strict=True):
        held = [ctypes.string_at(address + source * size, size) for _, source in moves]
        for (target, _), row in zip(moves, held, strict=True):
            ctypes.memmove(address + target * size, row, size)


def verify_tree_greedy_cpu(
    *, predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token, retrive_next_sibling,
    target_predict,
) -> None:  # fmt: skip
    """Follow the target's choices from the root of each request's tree as long as a child has them."""
    for row in range(len(candidates)):
        node, depth = 0, 0
        while True:
            accept_index[row, depth] = retrive_index[row, node]
            predicts[retrive_index[row, node]] = target_predict[row, node].to(predicts.dtype)
            child = int(retrive_next_token[row, node]) if depth + 1 < accept_index.shape[1] else -1
            while child >= 0 and candidates[row, child] != target_predict[row, node]:
                child = int(retrive_next_sibling[row, child])
            if child < 0:
                break
            node, depth = child, depth + 1
        accept_token_num[row] = depth


def _not_needed(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError("for SGLang's own draft models")


build_tree_kernel_efficient_cpu = rotate_input_ids_cpu = _not_needed
