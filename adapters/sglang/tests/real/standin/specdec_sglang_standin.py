"""SGLang's CPU engine on a machine without AMX: attention that verifies drafts, and proposers one after the other."""

from __future__ import annotations

import os
from typing import Any

CONFIG_FILE = "SPECDEC_STANDIN_CONFIG"
"""Names a file with a configuration, whose proposer replaces the one before when SGLang's cache is flushed."""


def register() -> None:
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS

    ATTENTION_BACKENDS["torch_native"] = make_attention
    if os.environ.get(CONFIG_FILE):
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        HookRegistry.register("specdec_sglang.worker.Worker.clear_cache_pool", reopen, HookType.AFTER)


def reopen(result: None, worker: Any) -> None:
    from specdec_sglang.settings import read_settings

    worker.open_specdec(read_settings(os.environ[CONFIG_FILE]))


def make_attention(runner: Any) -> Any:
    """Return the backend for AMX, which calls only the two operators that `sgl_kernel.attention` has."""
    from sglang.srt.layers.attention.intel_amx_backend import IntelAMXAttnBackend

    return IntelAMXAttnBackend(runner)
