"""What the adapter takes from the installed vLLM's V2 model runner has the signatures that it was written to.

PYTHONPATH=adapters/vllm/tests/real/interpreter PYTHON_OF_VLLM adapters/vllm/tests/real/signatures.py
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

FUNCTIONS = {
    "finish_requests": ["self", "scheduler_output"],
    "add_requests": ["self", "scheduler_output"],
    "update_requests": ["self", "scheduler_output"],
    "sample_tokens": ["self", "grammar_output"],
}
SAMPLED = ("copy_event", "sampled_token_ids", "num_sampled_tokens_np", "model_runner_output")


def names(function: Callable[..., Any]) -> list[str]:
    return [*inspect.signature(function).parameters]


def main() -> int:
    import vllm
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.worker.gpu.async_utils import AsyncOutput
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner
    from vllm.v1.worker.gpu.sample.sampler import Sampler
    from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler
    from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator
    from vllm.v1.worker.gpu.spec_decode.utils import DraftTokensHandler

    from specdec_vllm.v2.speculator import Speculator
    from specdec_vllm.v2.verify import StrictVerify

    wrong = [name for name, wanted in FUNCTIONS.items() if names(getattr(GPUModelRunner, name)) != wanted]
    pairs = {
        "propose": (BaseSpeculator.propose, Speculator.propose),
        "_verify": (RejectionSampler._verify, StrictVerify.__call__),
    }
    wrong += [name for name, (theirs, ours) in pairs.items() if names(theirs) != names(ours)]
    source = inspect.getsource(AsyncOutput.__init__)
    wrong += [name for name in SAMPLED if f"self.{name} =" not in source and f"self.{name}:" not in source]
    if names(Sampler.sample)[:9] != ["self", *names(RejectionSampler._verify)[1:2], *_rows()]:
        wrong.append("sample")
    if names(DraftTokensHandler.set_draft_tokens) != ["self", "input_batch", "draft_tokens"]:
        wrong.append("set_draft_tokens")
    fields = ("additional_config", "speculative_config", "worker_cls", "pipeline_parallel_size")
    wrong += [name for name in fields if name not in EngineArgs.__dataclass_fields__]
    print(f"vLLM {vllm.__version__}:", "all signatures are known" if not wrong else f"changed: {wrong}")
    return len(wrong)


def _rows() -> list[str]:
    """Return the arguments of `Sampler.sample` that `StrictVerify` gives in order, behind the logits."""
    return [
        "expanded_idx_mapping", "idx_mapping", "idx_mapping_np", "pos", "input_ids", "expanded_local_pos",
        "seq_lens_upper_bound_np",
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
