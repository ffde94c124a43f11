"""`block_verify`: block verification of chains; in expectation it accepts at least as many tokens as rejection sampling."""

from __future__ import annotations

import torch

from specdec_kernels.triton.block_verify.config import LaunchConfig, heuristic
from specdec_kernels.triton.block_verify.reference import block_verify_reference
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.noise.keys import NoiseKeys
from specdec_kernels.triton.rejection_verify import rejection_verify
from specdec_kernels.triton.rejection_verify.arguments import checked_verdict
from specdec_kernels.triton.results import ChainVerdict, written

__all__ = ["block_verify"]


def block_verify(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    temperatures: torch.Tensor,
    keys: NoiseKeys,
    *,
    draft_probs: torch.Tensor | None = None,
    has_probs: torch.Tensor | None = None,
    draft_ids: torch.Tensor | None = None,
    out: ChainVerdict | None = None,
    config: LaunchConfig | None = None,
) -> ChainVerdict:
    """Verify chains as a whole: Sun et al., arXiv 2403.10444.

    Node i has the weight P_i = min(1, P_{i-1} p / q). It passes if its uniform is below s / (s + 1 - P_i), where s is the
    mass of max(P_i p - q, 0) at its child. The last node passes if its uniform is below P_i. All nodes up to the deepest
    one that passes are accepted. The next token is drawn from max(P p - q, 0). Arguments, noise, output distribution and
    errors are those of `rejection_verify`. Without `draft_probs` this calls `rejection_verify`, since block verification
    has no advantage for point masses.
    """
    given = (logits, draft_token_ids, row_starts, num_nodes, temperatures, keys)
    if draft_probs is None:
        return rejection_verify(*given, has_probs=has_probs, draft_ids=draft_ids, out=out, config=config)
    q = draft_probs, has_probs, draft_ids
    out = checked_verdict(*given, *q, out)
    if draft_token_ids.shape[0] == 0:
        return out
    if backend_for(logits) is Backend.REFERENCE:
        return written(out, block_verify_reference(*given, *q))
    from specdec_kernels.triton.block_verify.kernel import block_verify_triton  # imports Triton

    chosen = config or heuristic(logits.shape[1])
    block_verify_triton(*given, *q, *out, chosen)
    return out
