"""Has vLLM's V2 model runner take a CPU: its kernels run in Triton's interpreter, slowly. For tests; on PYTHONPATH.

vLLM uses Triton where one backend has an active driver. The published Triton has none for CPUs, and its interpreter needs none.
"""

import os
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton

import triton.backends

if "cpu" not in triton.backends.backends:
    triton.backends.backends["cpu"] = SimpleNamespace(
        driver=SimpleNamespace(is_active=lambda: True), compiler=None
    )
