"""`strict_verify`: a drafted token is accepted if it equals the token that plain sampling would draw."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import IDS, check_drafts, check_tensor
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.noise.config import LaunchConfig
from specdec_kernels.triton.noise.keys import NoiseKeys, check_keys
from specdec_kernels.triton.results import PathVerdict, prepared, written
from specdec_kernels.triton.strict_verify.reference import strict_verify_reference
from specdec_kernels.triton.strict_verify.request_cuts import RequestCuts

__all__ = ["RequestCuts", "strict_verify"]


def strict_verify(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    *,
    parents: torch.Tensor | None = None,
    cuts: RequestCuts | None = None,
    out: PathVerdict | None = None,
    config: LaunchConfig | None = None,
) -> PathVerdict:
    """Verify chains or trees by sampling and comparing: accept a node if it equals the token drawn after its parent.

    Row `row_starts[b]` of the logits follows the last committed token of request b, row `row_starts[b] + 1 + j` its node j.
    The token after a node at depth d is `argmax(logits / T + g)` with Gumbel noise of position `keys.positions[b] + d`, as
    in `gumbel_sample`, so the text depends only on logits and keys. If siblings are equal, the longest path is accepted,
    and the first of equally long ones. At temperature 0 this is greedy verification. Nothing is copied to the host, so the
    caller must keep row numbers in range; for a parent that does not precede its child the nearest one that does is taken.
    (With coupled drafts: Daliri et al. 2024.)

    Args:
        logits: `[R, V]` floating point, unit stride along V.
        draft_token_ids: `[B, N]` integer, unit stride along N; N may be 0. Padding is not read.
        row_starts: `[B]` integer: first row of each request.
        num_nodes: `[B]` integer, 0 to N: drafted tokens of each request.
        temperatures: `[B]` float32, not negative.
        keys: of `[B]` requests; `positions` are the positions of the first token to emit.
        parents: `[B, N]` integer, unit stride along N: a parent precedes its child, -1 is the last committed token. None for
            chains.
        cuts: top-k and top-p, which the tokens are drawn after; the logits are then float32 as `process_logits` gives them, at
            most 0. They are drawn before it, and drawn again where they are cut, which gives the same tokens. None if
            nothing is cut.
        out: contiguous tensors to write to; None allocates them.
        config: launch parameters of the Triton kernels; None uses the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    check_drafts(logits, draft_token_ids, row_starts, num_nodes)
    num_requests, width = draft_token_ids.shape
    check_tensor("temperatures", temperatures, (num_requests,), (torch.float32,), logits)
    check_keys(keys, num_requests, logits)
    if parents is not None:
        check_tensor("parents", parents, (num_requests, width), IDS, logits, is_row_strided=True)
    shapes = ((num_requests,), (num_requests, width + 1), (num_requests, width), (num_requests,))
    out = prepared(PathVerdict, shapes, out, like=logits)
    if num_requests == 0:
        return out
    if cuts is not None:
        check_tensor("logits", logits, tuple(logits.shape), (torch.float32,), logits, is_row_strided=True)
        check_tensor("cuts.top_k", cuts.top_k, (num_requests,), IDS, logits)
        check_tensor("cuts.top_p", cuts.top_p, (num_requests,), (torch.float32,), logits)
    given = (logits, draft_token_ids, row_starts, num_nodes, temperatures, keys, parents, cuts)
    if backend_for(logits) is Backend.REFERENCE:
        return written(out, strict_verify_reference(*given))
    from specdec_kernels.triton.strict_verify.kernel import strict_verify_triton  # imports Triton

    strict_verify_triton(*given, *out, config)
    return out
