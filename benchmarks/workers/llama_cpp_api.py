"""The part of llama-cpp-python that is used, typed here because it is installed in a separate environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast


class Llama(Protocol):
    """`llama_cpp.Llama`."""

    def reset(self) -> None:
        """Clear the state, so the next prompt is processed from its beginning."""
        ...

    def generate(self, tokens: Sequence[int], *, temp: float) -> Iterator[int]:
        """Yield new tokens indefinitely, also past end-of-text tokens."""
        ...


def make_llama(
    arguments: Mapping[str, Any], prompt_lookup: Mapping[str, int] | None, is_float32: bool
) -> Llama:
    """Make a `llama_cpp.Llama`.

    Args:
        arguments: of `Llama`.
        prompt_lookup: arguments of `LlamaPromptLookupDecoding`; None for no speculation.
        is_float32: whether the KV cache is in float32 instead of float16.
    """
    module = import_module("llama_cpp")
    given = dict(arguments)
    if prompt_lookup is not None:
        speculative = import_module("llama_cpp.llama_speculative")
        given["draft_model"] = speculative.LlamaPromptLookupDecoding(**prompt_lookup)
    if is_float32:
        given |= {"type_k": module.GGML_TYPE_F32, "type_v": module.GGML_TYPE_F32}
    return cast(Llama, module.Llama(**given))
