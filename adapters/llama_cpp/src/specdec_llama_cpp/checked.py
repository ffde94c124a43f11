"""`Llama.generate` as `specdec check --host llama_cpp --model FILE.gguf` runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from specdec_llama_cpp.drafter import Drafter


class CheckedEngine:
    """A `Llama` with a drafter, which has one text at a time; `specdec_testing.hosts.Host` says what its functions do."""

    reads_gguf = True

    def __init__(
        self, model: str, speculative_config: Mapping[str, Any], *, caches_prefixes: bool, max_model_len: int
    ) -> None:
        from llama_cpp import Llama

        self._drafter = Drafter(speculative_config)
        self._keeps_prefix = caches_prefixes
        self._llama = Llama(
            model, n_ctx=max_model_len, logits_all=True, draft_model=self._drafter, verbose=False
        )

    def generate(self, prompts: Sequence[Sequence[int]], num_tokens: Sequence[int]) -> list[list[int]]:
        """Return the tokens after each prompt, one text after another."""
        texts = []
        for prompt, count in zip(prompts, num_tokens, strict=True):
            if not self._keeps_prefix:
                self._llama.reset()
            texts.append([*islice(self._llama.generate([*prompt], temp=0.0), count)])
            self._drafter.finish()
        return texts

    def counters(self) -> Mapping[str, Any]:
        """Return the proposer's counters."""
        return self._drafter.counters()

    def close(self) -> None:
        """Free the model."""
        self._llama.close()
