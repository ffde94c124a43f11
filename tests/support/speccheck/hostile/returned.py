"""What a proposer may return that fails, lies or changes after the call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from specdec.interfaces import Draft, DraftSampling, ProposeBatch

VOCAB = 128
WIDE = 10**12
Kind = Callable[[Any, Draft, ProposeBatch], object]


def chain(draft: Draft, rows: int, width: int = 3) -> Draft:
    """Return a draft of `width` nodes in every row."""
    return Draft(token_ids=torch.ones((rows, width), dtype=torch.int64))


def with_q(draft: Draft, rows: int, **keys: Any) -> Draft:
    """Return a chain with uniform q."""
    made = chain(draft, rows)
    q = torch.full((rows, 4, VOCAB), 1 / VOCAB)
    return replace(made, **{"node_probs": q, "sampling": DraftSampling.IID} | keys)


class Raising(torch.Tensor):
    """Answers a few questions and then raises."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("__get__", "dim", "size"):
            return super().__torch_function__(func, types, args, kwargs or {})
        raise SystemExit(f"{name} is not for you")


class Growing(torch.Tensor):
    """Has other numbers each time it is read."""

    def tolist(self) -> list[Any]:
        self.num_reads = getattr(self, "num_reads", 0) + 1
        plain = self.as_subclass(torch.Tensor)
        return plain.tolist() if self.num_reads < 2 else [[10**9] * plain.shape[-1]] * plain.shape[0]


class Liar(int):
    """Says that it is in every range."""

    def __lt__(self, other: object) -> bool:
        return True

    __le__ = __ge__ = __gt__ = __eq__ = __lt__  # type: ignore[assignment]

    def __hash__(self) -> int:
        return 0


class Evil(str):
    """Cannot be shown."""

    def __str__(self) -> str:
        raise SystemExit("no name")

    __repr__ = __format__ = __str__  # type: ignore[assignment]


class NoName:
    def __str__(self) -> str:
        raise GeneratorExit

    __repr__ = __str__


class ChangingDraft(Draft):
    """Gives good ids the first time they are read."""

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if name in ("token_ids", "parents") and value is not None:
            reads = object.__getattribute__(self, "__dict__").setdefault("reads", {})
            reads[name] = reads.get(name, 0) + 1
            if reads[name] > 1:
                raise SystemExit(f"{name} once is enough")
        return value


class Pretender:
    """Says that it is a draft."""

    __class__ = Draft  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise SystemExit(name)


def freed(tensor: torch.Tensor) -> torch.Tensor:
    """Take a tensor's memory away."""
    tensor.untyped_storage().resize_(0)
    return tensor


def later(change: Callable[[], object], seconds: float = 0.05) -> None:
    """Change something from another thread, again and again, from now on."""

    def run() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            change()

    threading.Thread(target=run, daemon=True).start()


def _rewritten_parents(plugin: Any, draft: Draft, batch: ProposeBatch) -> Draft:
    made = Draft.from_lists([[1, 2, 3]] * batch.batch_size, [[-1, 0, 1]] * batch.batch_size)
    later(lambda: made.parents.copy_(torch.tensor([1, 2, 0])))  # type: ignore[union-attr]
    return made


def _rewritten_ids(plugin: Any, draft: Draft, batch: ProposeBatch) -> Draft:
    made = chain(draft, batch.batch_size)
    later(lambda: made.token_ids.fill_(10**9))
    return made


def _rewritten_q(plugin: Any, draft: Draft, batch: ProposeBatch) -> Draft:
    made = with_q(draft, batch.batch_size)
    later(lambda: made.node_probs.fill_(float("nan")))  # type: ignore[union-attr]
    return made


def _rewritten_map(plugin: Any, draft: Draft, batch: ProposeBatch) -> Draft:
    if not hasattr(plugin, "map"):
        plugin.map = torch.arange(VOCAB)
    else:
        plugin.map.fill_(10**9)
    return with_q(draft, batch.batch_size, vocab_map=plugin.map)


def _grown_map(plugin: Any, draft: Draft, batch: ProposeBatch) -> Draft:
    if not hasattr(plugin, "map"):
        plugin.map = torch.arange(VOCAB)
        return with_q(draft, batch.batch_size, vocab_map=plugin.map)
    plugin.map.resize_(9)
    q = torch.full((batch.batch_size, 4, 9), 1 / 9)
    return with_q(draft, batch.batch_size, vocab_map=plugin.map, node_probs=q)


def _garbage_flags(plugin: Any, draft: Draft, batch: ProposeBatch) -> Draft:
    flags = torch.full((batch.batch_size,), 7, dtype=torch.uint8).view(torch.bool)
    return with_q(draft, batch.batch_size, has_probs=flags)


def _of(make: Callable[[Draft, int], object]) -> Kind:
    return lambda plugin, draft, batch: make(draft, batch.batch_size)


ERRORS: dict[str, Kind] = {
    "nothing": _of(lambda d, n: None),
    "a class": _of(lambda d, n: Draft),
    "a generator": _of(lambda d, n: (x for x in ())),
    "a pretended draft": _of(lambda d, n: Pretender()),
    "sparse token_ids": _of(lambda d, n: Draft(torch.ones((n, 3), dtype=torch.int64).to_sparse())),
    "CSR token_ids": _of(lambda d, n: Draft(torch.ones((n, 3), dtype=torch.int64).to_sparse_csr())),
    "sparse token_ids beside rows": _of(
        lambda d, n: replace(
            Draft.from_lists([[1]] * n), token_ids=torch.ones((n, 1), dtype=torch.int64).to_sparse()
        )
    ),
    "sparse confidence": _of(lambda d, n: replace(chain(d, n), confidence=torch.ones(n, 3).to_sparse())),
    "CSR confidence": _of(lambda d, n: replace(chain(d, n), confidence=torch.ones(n, 3).to_sparse_csr())),
    "sparse parents": _of(
        lambda d, n: replace(chain(d, n), parents=torch.ones((n, 3), dtype=torch.int64).to_sparse())
    ),
    "sparse q": _of(lambda d, n: with_q(d, n, node_probs=torch.full((n, 4, VOCAB), 1 / VOCAB).to_sparse())),
    "sparse has_probs": _of(lambda d, n: with_q(d, n, has_probs=torch.ones(n, dtype=torch.bool).to_sparse())),
    "sparse vocab_map": _of(lambda d, n: with_q(d, n, vocab_map=torch.arange(VOCAB).to_sparse())),
    "nested token_ids": _of(lambda d, n: Draft(torch.nested.nested_tensor([torch.ones(2)] * n))),
    "meta token_ids": _of(lambda d, n: Draft(torch.ones((n, 3), dtype=torch.int64, device="meta"))),
    "meta parents": _of(
        lambda d, n: replace(chain(d, n), parents=torch.ones((n, 3), dtype=torch.int64, device="meta"))
    ),
    "meta confidence": _of(lambda d, n: replace(chain(d, n), confidence=torch.ones((n, 3), device="meta"))),
    "meta q": _of(lambda d, n: with_q(d, n, node_probs=torch.ones((n, 4, VOCAB), device="meta"))),
    "a raising subclass as token_ids": _of(
        lambda d, n: Draft(torch.ones((n, 3), dtype=torch.int64).as_subclass(Raising))
    ),
    "a raising subclass as q": _of(
        lambda d, n: with_q(d, n, node_probs=torch.full((n, 4, VOCAB), 1 / VOCAB).as_subclass(Raising))
    ),
    "a raising subclass as confidence": _of(
        lambda d, n: replace(chain(d, n), confidence=torch.ones(n, 3).as_subclass(Raising))
    ),
    "ids that change": _of(lambda d, n: Draft(torch.ones((n, 3), dtype=torch.int64).as_subclass(Growing))),
    "parents that change": _of(
        lambda d, n: replace(
            chain(d, n), parents=torch.full((n, 3), -1, dtype=torch.int64).as_subclass(Growing)
        )
    ),
    "flags that change": _of(
        lambda d, n: with_q(d, n, has_probs=torch.ones((1, n), dtype=torch.bool).as_subclass(Growing)[0])
    ),
    "quantised q": _of(
        lambda d, n: with_q(
            d, n, node_probs=torch.quantize_per_tensor(torch.ones(n, 4, VOCAB), 0.01, 0, torch.quint8)
        )
    ),
    "complex q": _of(
        lambda d, n: with_q(d, n, node_probs=torch.ones(n, 4, VOCAB, dtype=torch.complex64).conj())
    ),
    "q of booleans": _of(lambda d, n: with_q(d, n, node_probs=torch.ones(n, 4, VOCAB, dtype=torch.bool))),
    "freed token_ids": _of(lambda d, n: Draft(freed(torch.ones((n, 3), dtype=torch.int64)))),
    "freed q": _of(lambda d, n: with_q(d, n, node_probs=freed(torch.full((n, 4, VOCAB), 1 / VOCAB)))),
    "freed confidence": _of(lambda d, n: replace(chain(d, n), confidence=freed(torch.ones(n, 3)))),
    "endless token_ids": _of(lambda d, n: Draft(torch.ones(1, dtype=torch.int64).expand(n, WIDE))),
    "endless q": _of(lambda d, n: with_q(d, n, node_probs=torch.full((1,), 1 / WIDE).expand(n, 4, WIDE))),
    "token_ids of bytes": _of(lambda d, n: Draft(torch.ones((n, 3), dtype=torch.uint8))),
    "names that cannot be shown": _of(lambda d, n: replace(chain(d, n), proposers=(NoName(),) * n)),
    "a sampling that is anything": _of(lambda d, n: with_q(d, n, sampling=Liar(1))),
    "confidence of raw bits": _of(
        lambda d, n: replace(chain(d, n), confidence=torch.ones((n, 3), dtype=torch.uint8).view(torch.bits8))
    ),
    "q of 8 bits": _of(
        lambda d, n: with_q(d, n, node_probs=torch.full((n, 4, VOCAB), 2**-7).to(torch.float8_e5m2))
    ),
    "a map below 0": _of(lambda d, n: with_q(d, n, vocab_map=torch.arange(VOCAB) - 1)),
    "a map to one id": _of(lambda d, n: with_q(d, n, vocab_map=torch.zeros(VOCAB, dtype=torch.int64))),
    "a map of floats": _of(lambda d, n: with_q(d, n, vocab_map=torch.arange(VOCAB) * 1.0)),
}
"""Counted as errors."""

CUT: dict[str, Kind] = {
    "q with the negative bit": _of(
        lambda d, n: with_q(d, n, node_probs=torch.full((n, 4, VOCAB), 1j / VOCAB).conj().imag)
    ),
    "negative q that sums to 1": _of(
        lambda d, n: with_q(d, n, node_probs=torch.tensor([2.0, -1.0] + [0.0] * (VOCAB - 2)).expand(n, 4, VOCAB))
    ),
    "q of NaN": _of(lambda d, n: with_q(d, n, node_probs=torch.full((n, 4, VOCAB), float("nan")))),
    "q of infinities": _of(lambda d, n: with_q(d, n, node_probs=torch.full((n, 4, VOCAB), float("inf")))),
    "parents in a circle": _of(lambda d, n: Draft.from_lists([[1, 2, 3]] * n, [[2, 0, 1]] * n)),
    "parents far away": _of(lambda d, n: Draft.from_lists([[1, 2]] * n, [[-1, 2**62]] * n)),
    "ids far away": _of(lambda d, n: Draft(torch.full((n, 3), 2**62))),
    "a thousand nodes": _of(lambda d, n: Draft(torch.ones((n, 1000), dtype=torch.int64))),
}  # fmt: skip
"""Counted as nodes that were cut."""

HARMLESS: dict[str, Kind] = {
    "fields that answer once": _of(lambda d, n: ChangingDraft(torch.ones((n, 3), dtype=torch.int64))),
    "names that lie about themselves": _of(lambda d, n: replace(chain(d, n), proposers=(Evil("x"),) * n)),
    "q that somebody trains": _of(
        lambda d, n: with_q(d, n, node_probs=torch.full((n, 4, VOCAB), 1 / VOCAB, requires_grad=True))
    ),
    "token_ids in inference mode": _of(
        lambda d, n: torch.inference_mode()(lambda: Draft(torch.ones((n, 3), dtype=torch.int64)))()
    ),
    "a parameter as confidence": _of(
        lambda d, n: replace(chain(d, n), confidence=torch.nn.Parameter(torch.ones(n, 3)))
    ),
    "parents rewritten by a thread": _rewritten_parents,
    "ids rewritten by a thread": _rewritten_ids,
    "q rewritten by a thread": _rewritten_q,
    "a map rewritten in place": _rewritten_map,
    "a map that shrinks in place": _grown_map,
    "flags of garbage": _garbage_flags,
    "ids with strides": _of(lambda d, n: Draft(torch.ones((3, 2 * n), dtype=torch.int64).t()[::2])),
}
"""What is copied as it is, or can be read only once."""
