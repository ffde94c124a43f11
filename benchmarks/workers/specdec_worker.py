"""specdec as a worker. Settings: `speculative_config`, and further arguments of `LLM` under `arguments`."""

from __future__ import annotations

from typing import Any, cast

from common.drafts import draft_counters
from common.protocol import Counters, Load
from common.worker import serve

from specdec import LLM, SamplingParams, SpeculativeOptions


class SpecdecEngine:
    """An `LLM` with token ids in and out."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    def generate(self, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        """Generate one batch; requests of different lengths run without padding."""
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        outputs = self._llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False
        )
        return [list(output.outputs[0].token_ids) for output in outputs]

    def counters(self) -> Counters:
        """Return draft totals."""
        return draft_counters(self._llm.get_metrics())


def load(order: Load) -> SpecdecEngine:
    """Load the model without a tokenizer and without a prefix cache, so every round does the same work."""
    settings = order["settings"]
    arguments = cast(dict[str, Any], settings.get("arguments", {}))
    return SpecdecEngine(
        LLM(
            model=order["model"],
            dtype=order["dtype"],
            max_model_len=order["max_model_len"],
            max_num_seqs=order["max_num_seqs"],
            speculative_config=cast(SpeculativeOptions | None, settings.get("speculative_config")),
            skip_tokenizer_init=True,
            enable_prefix_caching=False,
            seed=0,
            **arguments,
        )
    )


if __name__ == "__main__":
    serve(
        load,
        [
            "specdec-core",
            "specdec-plugin-ngram",
            "specdec-plugin-draft-model",
            "specdec-plugin-eagle",
            "specdec-plugin-suffix",
            "torch",
            "transformers",
            "numba",
        ],
    )
