"""What vLLM's V2 model runner does not do on a CPU by itself; for tests, called before an engine is made."""

from __future__ import annotations

from typing import Any


def prepare() -> None:
    """Leave asynchronous scheduling on, and truncate by torch: Triton's interpreter stops in vLLM's kernel for that."""
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.sample.ops import topk_topp_sampler

    topk_topp_sampler.HAS_TRITON = False
    stock = CpuPlatform.check_and_update_config

    def check_and_update_config(cls: type, vllm_config: Any) -> None:
        wanted = vllm_config.scheduler_config.async_scheduling
        stock(vllm_config)
        vllm_config.scheduler_config.async_scheduling = wanted

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
