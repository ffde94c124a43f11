"""The backend `flashinfer`."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import ClassVar

from specdec.interfaces import SPECDEC_API, AttentionFactory, AttentionNeeds, Backend, Declined

_WRAPPER = "BatchPrefillWithPagedKVCacheWrapper"


class FlashInferBackend(Backend):
    """Attention by FlashInfer (arXiv 2501.01005), if the user asks for it: no device has run it and Triton's yet."""

    name: ClassVar[str] = "flashinfer"
    api_version: ClassVar[int] = SPECDEC_API
    order: ClassVar[int] = 20

    def attention(self, needs: AttentionNeeds) -> AttentionFactory | Declined:
        """See `Backend.attention`."""
        if needs.device.type != "cuda":
            return Declined("it needs a CUDA device", is_elsewhere=True)
        for package, remedy in (("flashinfer", "specdec-kernels[flashinfer]"), ("triton", "triton")):
            if find_spec(package) is None:
                return Declined(f"{package} is not installed: pip install '{remedy}'")
        if not needs.is_requested:
            return Declined('it attends where attention_backend="flashinfer" asks for it')
        if needs.is_invariant:
            return Declined(
                "how it splits contexts depends on the batch, so its attention is not batch-invariant"
            )
        from specdec_kernels.flashinfer.attention import DTYPES, FlashInferAttention

        if needs.dtype not in DTYPES:
            return Declined(f"its prefill kernels take float16 and bfloat16, not {needs.dtype}")
        library = import_module("flashinfer")
        wrapper = getattr(library, _WRAPPER, None)
        if wrapper is None:
            version = getattr(library, "__version__", "as installed")
            return Declined(
                f"flashinfer {version} has no {_WRAPPER}: pip install --upgrade flashinfer-python"
            )
        return partial(FlashInferAttention, wrapper)
