"""llama.cpp as a worker. Settings: the GGUF `file`, and `prompt_lookup`, arguments of `LlamaPromptLookupDecoding`."""

from __future__ import annotations

import os
from itertools import islice
from typing import Any, cast

from common.protocol import Counters, Load
from common.worker import serve

from workers.llama_cpp_api import Llama, make_llama

NUM_THREADS = len(os.sched_getaffinity(0))
"""llama-cpp-python would take half of the cores."""


class LlamaCppEngine:
    """A `llama_cpp.Llama` that is given token ids and asked for token ids, one prompt at a time.

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
        self._llama.reset()  # or the state of the last text is reused as far as both begin alike
        return [[int(token) for token in islice(self._llama.generate(prompts[0], temp=0.0), max_tokens)]]

    def counters(self) -> Counters:
        """Return nothing: `Llama` does not tell."""
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
        # With drafts it keeps logits of all tokens, but has room for those of one batch unless it is told so.
        "logits_all": lookup is not None,
        "verbose": False,
    }
    return LlamaCppEngine(make_llama(arguments, lookup, order["dtype"] == "float32"))


if __name__ == "__main__":
    serve(load, ["llama-cpp-python", "numpy"], NUM_THREADS)
