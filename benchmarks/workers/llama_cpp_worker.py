"""llama.cpp as a worker. Settings: the GGUF `file`, and `prompt_lookup`, arguments of `LlamaPromptLookupDecoding`."""

from __future__ import annotations

import os
from itertools import islice
from typing import Any, cast

from common.protocol import Counters, Load
from common.worker import serve

from workers.llama_cpp_api import Llama, make_llama

NUM_THREADS = len(os.sched_getaffinity(0))
"""All cores; llama-cpp-python's default is half of them."""


class LlamaCppEngine:
    """A `llama_cpp.Llama` with token ids in and out, one prompt at a time.

    Args:
        llama: the loaded engine.
    """

    def __init__(self, llama: Llama) -> None:
        self._llama = llama

    def generate(self, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        """Generate past any end-of-text token.

        Raises:
            ValueError: for several prompts, since `Llama` runs one sequence at a time.
        """
        if len(prompts) != 1:
            raise ValueError(f"llama-cpp-python runs one prompt at a time, not {len(prompts)}")
        self._llama.reset()  # otherwise the common prefix with the last text is reused
        return [[int(token) for token in islice(self._llama.generate(prompts[0], temp=0.0), max_tokens)]]

    def counters(self) -> Counters:
        """Return no counters; `Llama` has none."""
        return {}


def load(order: Load) -> LlamaCppEngine:
    """Load the file, with as many threads as there are cores."""
    settings = order["settings"]
    lookup = cast(dict[str, int] | None, settings.get("prompt_lookup"))
    arguments: dict[str, Any] = {
        "model_path": settings["file"],
        "n_ctx": order["max_model_len"],
        "n_threads": NUM_THREADS,
        "n_threads_batch": NUM_THREADS,
        # With drafts it keeps logits of all tokens, but allocates room for one batch unless this is set.
        "logits_all": lookup is not None,
        "verbose": False,
    }
    return LlamaCppEngine(make_llama(arguments, lookup, order["dtype"] == "float32"))


if __name__ == "__main__":
    serve(load, ["llama-cpp-python", "numpy"], NUM_THREADS)
