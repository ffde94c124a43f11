"""Facts about a running `llama_cpp.Llama`."""

from __future__ import annotations

from dataclasses import dataclass
from types import FrameType
from typing import Protocol, runtime_checkable


@runtime_checkable
class Llama(Protocol):
    """The part of `llama_cpp.Llama` that is used."""

    def n_vocab(self) -> int:
        """Return the number of logits."""

    def n_ctx(self) -> int:
        """Return the longest context, in tokens."""

    def token_eos(self) -> int:
        """Return the id that ends a text, or -1."""


@dataclass(frozen=True)
class HostFacts:
    """Facts about the target for proposers."""

    vocab_size: int
    max_model_len: int
    eos_token_ids: tuple[int, ...] = ()


def facts_of_caller(frame: FrameType | None) -> HostFacts | None:
    """Return the facts of the `Llama` whose method the frame belongs to, or None for another caller.

    A draft model is created before its `Llama` and receives only ids, so the facts are first available in the first call.
    """
    caller = None if frame is None else frame.f_locals.get("self")
    if not isinstance(caller, Llama):
        return None
    eos = caller.token_eos()
    return HostFacts(caller.n_vocab(), caller.n_ctx(), (eos,) if eos >= 0 else ())
