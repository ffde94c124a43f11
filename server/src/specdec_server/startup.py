"""The line that a server logs when it begins to serve."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec import AsyncLLM
from specdec.metrics import Gauge


def describe(llm: AsyncLLM, names: Sequence[str], max_num_seqs: int) -> str:
    """Return what an engine serves, and with what: type, drafts, size of the KV cache, limits, threads.

    Args:
        llm: the engine.
        names: what requests call the model.
        max_num_seqs: maximum number of requests that run at once.
    """
    num_threads = torch.get_num_threads()
    info, config = llm.target_info, llm.speculative_config
    levels = {metric.name: metric.value for metric in llm.get_metrics() if isinstance(metric, Gauge)}
    parts = [
        f"serving {', '.join(names)}",
        f"{str(info.dtype).removeprefix('torch.')} on {info.device}",
        "without drafts"
        if config is None
        else f"drafts by {config.method} of up to {config.num_speculative_tokens} tokens",
    ]
    if "specdec:kv_cache_bytes" in levels:  # a scorer of one's own need not tell
        size, slots = levels["specdec:kv_cache_bytes"], levels["specdec:kv_cache_tokens"]
        parts.append(f"KV cache of {size:,} bytes for {slots:,} tokens")
    parts += [
        f"up to {max_num_seqs} sequences of {info.max_model_len:,} tokens",
        f"{num_threads} thread{'' if num_threads == 1 else 's'}",
    ]
    return ", ".join(parts)
