"""SGLang's CPU engine on a machine without AMX: attention that verifies drafts, and sampled verification."""

from __future__ import annotations

import os
from typing import Any

import torch

SAMPLING = "SPECDEC_STANDIN_SAMPLING"
"""Set this for sampled verification as on a GPU; without it SGLang verifies greedily on a CPU."""
CONFIG_FILE = "SPECDEC_STANDIN_CONFIG"
"""Names a file with a configuration, whose proposer replaces the one before when SGLang's cache is flushed."""


def register() -> None:
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS

    ATTENTION_BACKENDS["torch_native"] = make_attention
    if os.environ.get(CONFIG_FILE):
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        HookRegistry.register("specdec_sglang.worker.Worker.clear_cache_pool", reopen, HookType.AFTER)
    if os.environ.get(SAMPLING):
        from sglang.srt.speculative import eagle_utils

        eagle_utils._verify_uses_greedy = lambda *, is_all_greedy, **_: is_all_greedy
        eagle_utils.tree_speculative_sampling_target_only = verify_sampled
        eagle_utils.sampling_softmax = softmax
        eagle_utils.top_k_renorm_prob = top_k
        eagle_utils.top_p_renorm_prob = top_p


def reopen(result: None, worker: Any) -> None:
    from specdec_sglang.settings import read_settings

    worker.open_specdec(read_settings(os.environ[CONFIG_FILE]))


def make_attention(runner: Any) -> Any:
    """Return the backend for AMX, which calls only the two operators that `sgl_kernel.attention` has."""
    from sglang.srt.layers.attention.intel_amx_backend import IntelAMXAttnBackend

    return IntelAMXAttnBackend(runner)


def softmax(logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
    return (logits.float() / temperatures.float().view(-1, 1)).softmax(-1)


def top_k(probs: torch.Tensor, ks: torch.Tensor) -> torch.Tensor:
    ranks = probs.argsort(-1, descending=True).argsort(-1)
    kept = probs * (ranks < ks.view(-1, 1))
    return kept / kept.sum(-1, keepdim=True)


def top_p(probs: torch.Tensor, ps: torch.Tensor) -> torch.Tensor:
    ordered, order = probs.sort(-1, descending=True)
    ordered = ordered * (ordered.cumsum(-1) - ordered < ps.view(-1, 1))
    kept = torch.zeros_like(probs).scatter(-1, order, ordered)
    return kept / kept.sum(-1, keepdim=True)


def verify_sampled(
    *, predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token, retrive_next_sibling,
    uniform_samples, uniform_samples_for_final_sampling, target_probs, **_,
) -> None:  # fmt: skip
    """Children of a node share one uniform number: the first at which the sum of their p exceeds it is accepted.

    If none is, a token is drawn from what p leaves beside them.
    """
    for row in range(len(candidates)):
        node, depth = 0, 0
        accept_index[row, 0] = retrive_index[row, 0]
        while True:
            rest, below = target_probs[row, node].double().clone(), 0.0
            child = int(retrive_next_token[row, node]) if depth + 1 < accept_index.shape[1] else -1
            while child >= 0:
                token = candidates[row, child]
                below += float(target_probs[row, node, token])
                if float(uniform_samples[row, node]) < below:
                    break
                rest[token] = 0
                child = int(retrive_next_sibling[row, child])
            if child < 0:
                break
            predicts[retrive_index[row, node]] = candidates[row, child].to(predicts.dtype)
            node, depth = child, depth + 1
            accept_index[row, depth] = retrive_index[row, node]
        sums = rest.cumsum(0)
        point = uniform_samples_for_final_sampling[row].double() * sums[-1]
        chosen = torch.searchsorted(sums, point, right=True).clamp(max=len(sums) - 1)
        predicts[retrive_index[row, node]] = chosen.to(predicts.dtype)
        accept_token_num[row] = depth
