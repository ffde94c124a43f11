"""vLLM as `specdec check --host vllm` runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic, sleep
from typing import Any

from specdec_vllm.settings import KEY

_MOST_WAIT_S = 10.0


class CheckedEngine:
    """vLLM's `LLM` in float32; `specdec_testing.hosts.Host` says what its functions do."""

    reads_gguf = False

    def __init__(
        self, model: str, speculative_config: Mapping[str, Any], *, caches_prefixes: bool, max_model_len: int
    ) -> None:
        from vllm import LLM

        k = speculative_config["num_speculative_tokens"]
        self._llm = LLM(
            model,
            dtype="float32",
            enforce_eager=True,
            max_model_len=max_model_len,
            max_num_seqs=8,
            enable_prefix_caching=caches_prefixes,
            speculative_config={"method": "ngram_gpu", "num_speculative_tokens": k},
            additional_config={KEY: dict(speculative_config)},
        )

    def generate(self, prompts: Sequence[Sequence[int]], num_tokens: Sequence[int]) -> list[list[int]]:
        """Return the tokens after each prompt."""
        from vllm import SamplingParams

        outputs = self._llm.generate(
            [{"prompt_token_ids": [*prompt]} for prompt in prompts],
            [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in num_tokens],
            use_tqdm=False,
        )
        return [list(output.outputs[0].token_ids) for output in outputs]

    def counters(self) -> Mapping[str, Any]:
        """Return the proposer's counters, once vLLM has told its workers who ended: that is a step after the last tokens."""
        deadline = monotonic() + _MOST_WAIT_S
        while True:
            counters: Mapping[str, Any] = self._llm.collective_rpc("specdec_counters")[0]
            if not counters["specdec:requests_held"] or monotonic() > deadline:
                return counters
            sleep(0.05)

    def close(self) -> None:
        """End vLLM's processes."""
        self._llm.llm_engine.engine_core.shutdown()
