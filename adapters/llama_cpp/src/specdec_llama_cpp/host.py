"""What a running `llama_cpp.Llama` says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from types import FrameType
from typing import Protocol, runtime_checkable


@runtime_checkable
class Llama(Protocol):
    """The part of `llama_cpp.Llama` that is asked."""

    def n_vocab(self) -> int:
        """Return the number of logits."""

    def n_ctx(self) -> int:
        """Return the longest context, in tokens."""

    def token_eos(self) -> int:
        """Return the id that ends a text, or -1."""


@dataclass(frozen=True)
class HostFacts:
    """What a proposer is told of the target."""

    vocab_size: int
    max_model_len: int
    eos_token_ids: tuple[int, ...] = ()


def facts_of_caller(frame: FrameType | None) -> HostFacts | None:
    """Return the facts of the `Llama` whose method the frame belongs to, or None for another caller.

    A draft model is made before its `Llama` and given nothing but ids, so the first call is where they can be had.
    """
    caller = None if frame is None else frame.f_locals.get("self")
    if not isinstance(caller, Llama):
        return None
    eos = caller.token_eos()
    return HostFacts(caller.n_vocab(), caller.n_ctx(), (eos,) if eos >= 0 else ())
