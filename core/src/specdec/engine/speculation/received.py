"""Copies what a proposer returned into plain dense tensors of the engine's own; nothing of the plugin's is read after that."""

from __future__ import annotations

from operator import index as as_int

import torch

from specdec.interfaces.draft import Draft, DraftSampling

_KINDS = (torch.Tensor, torch.nn.Parameter)
_MAX_WIDTH = 65_536
_MAX_VOCABULARIES = 16
"""How many times the target's vocabulary a row of q may be wide."""
_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
"""Those that torch computes with: it only stores 8-bit floats, and cannot index raw bits."""


class DraftError(ValueError):
    """A draft that does not belong to its batch, or a malformed one under `strict_drafts=True`."""


def receive(offered: object, size: int, most: int, vocab_size: int) -> Draft:
    """Return an own copy of a draft for `size` rows of at most `most` nodes, not checked yet. Each field is read once.

    Its tensors have at most `most` columns, but for `token_ids`, whose others are counted. Still the plugin's are
    `vocab_map`, copied once for many drafts, token ids without q, read at once, and nodes and q with `num_nodes`, as given.

    Raises:
        DraftError: if it does not belong to the batch; whatever else the plugin's objects raise.
    """
    if not isinstance(offered, Draft):
        raise DraftError(f"propose returned {type(offered).__name__}, not a Draft")
    ids = _plain("token_ids", offered.token_ids, (size,), 2, torch.int64)
    width = ids.shape[1]
    if width > _MAX_WIDTH:
        raise DraftError(f"Draft.token_ids has {width} columns, where at most {most} nodes may be drafted")
    num_nodes = None if offered.num_nodes is None else _lengths(offered.num_nodes, size, width)
    parents, confidence, probs = offered.parents, offered.confidence, offered.node_probs
    if parents is not None:
        parents = _plain("parents", parents, (size, width), 2, torch.int64)
    if confidence is not None:
        confidence = _plain("confidence", confidence, (size, width), 2)
        _check_float("confidence", confidence)
        confidence = confidence[:, :most]
    sampling, has_q, names = DraftSampling.DETERMINISTIC, False, offered.proposers
    has_probs, vocab_map = offered.has_probs, offered.vocab_map
    if has_probs is not None:
        has_probs = copied(_plain("has_probs", has_probs, (size,), 1, torch.bool))
    width_of_map = None if vocab_map is None else len(_plain("vocab_map", vocab_map, (), 1, torch.int64))
    if probs is not None:
        probs = _plain("node_probs", probs, (size, width + 1), 3)
        has_q = size > 0 if has_probs is None else bool(has_probs.any())
    if has_q and probs is not None:
        sampling = _sampling_of(offered.sampling, probs, vocab_size)
        if width_of_map is not None and width_of_map != probs.shape[2]:
            raise DraftError(f"Draft.vocab_map has {width_of_map} ids for a q over {probs.shape[2]}")
        probs = copied(probs[:, : most + 1]) if num_nodes is None else probs
    if num_nodes is None:
        ids, parents = copied(ids) if has_q else ids, None if parents is None else copied(parents[:, :most])
        confidence = None if confidence is None else copied(confidence)
    return Draft(
        token_ids=ids,
        parents=parents,
        sampling=sampling,
        node_probs=probs if has_q else None,
        has_probs=has_probs if has_q else None,
        vocab_map=vocab_map if has_q else None,
        confidence=confidence,
        proposers=None if names is None else _names(names, size),
        num_nodes=num_nodes,
    )


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a dense copy in memory of its own, on the same device, whatever strides or lazy bits the tensor has."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _plain(
    name: str, value: object, shape: tuple[int, ...], ndim: int, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return an alias of a tensor that can be copied safely; `shape` has its first dimensions.

    Raises:
        DraftError: for a subclass, whose methods are the plugin's, a layout or device that holds no dense numbers,
            another shape or dtype, and memory that is smaller than the tensor says.
    """
    if not isinstance(value, torch.Tensor) or not any(type(value) is kind for kind in _KINDS):
        kind = type(value).__name__
        raise DraftError(f"Draft.{name} is {kind}, not a tensor (of torch.Tensor itself, not of a subclass)")
    tensor = value.detach()
    if tensor.layout is not torch.strided or tensor.is_meta:
        place = "on the device meta" if tensor.is_meta else f"of layout {tensor.layout}"
        raise DraftError(f"Draft.{name} is a tensor {place}: give a dense one that holds numbers")
    given = tensor.shape
    if len(given) != ndim or given[: len(shape)] != shape:
        wanted = ", ".join([*map(str, shape), *["any"] * (ndim - len(shape))])
        raise DraftError(f"Draft.{name} has shape {tuple(given)} for a batch that needs [{wanted}]")
    if dtype is not None and tensor.dtype is not dtype:
        raise DraftError(f"Draft.{name} is {tensor.dtype}, not {str(dtype).removeprefix('torch.')}")
    size = tensor.nbytes
    if size and not tensor.is_contiguous():
        size = tensor.element_size() * (
            1 + sum((n - 1) * step for n, step in zip(given, tensor.stride(), strict=True))
        )
    if size and tensor.storage_offset() * tensor.element_size() + size > tensor.untyped_storage().nbytes():
        raise DraftError(f"Draft.{name} of shape {tuple(given)} is larger than its memory")
    return tensor


def _sampling_of(given: object, probs: torch.Tensor, vocab_size: int) -> DraftSampling:
    """Return how nodes were drawn from q.

    Raises:
        DraftError: if other fields contradict q.
    """
    if given is not DraftSampling.IID and given is not DraftSampling.WITHOUT_REPLACEMENT:
        raise DraftError(
            f"Draft.node_probs is given but Draft.sampling is {given}, by which nothing was drawn: give "
            "DraftSampling.IID (for chains too) or WITHOUT_REPLACEMENT, or leave node_probs out"
        )
    _check_float("node_probs", probs)
    if probs.shape[2] > _MAX_VOCABULARIES * vocab_size:
        raise DraftError(f"Draft.node_probs is over {probs.shape[2]} ids, and the target has {vocab_size}")
    return DraftSampling(given)


def _check_float(name: str, tensor: torch.Tensor) -> None:
    if tensor.dtype not in _FLOATS:
        raise DraftError(f"Draft.{name} is {tensor.dtype}, not floating point of 16, 32 or 64 bits")


def _lengths(num_nodes: object, size: int, width: int) -> tuple[int, ...]:
    """Return the lengths of `size` rows of at most `width` nodes as exact `int`s.

    Raises:
        DraftError: if they are none.
    """
    lengths = tuple(map(as_int, num_nodes)) if isinstance(num_nodes, tuple) else ()
    if len(lengths) != size or not all(0 <= length <= width for length in lengths):
        raise DraftError(
            f"Draft.num_nodes is {num_nodes!r}, not a tuple of {size} numbers of nodes up to {width}"
        )
    return lengths


def _names(proposers: object, size: int) -> tuple[str, ...]:
    """Return the names of the proposers of `size` rows as exact `str`s.

    Raises:
        DraftError: if they are none.
    """
    names = tuple(proposers) if isinstance(proposers, tuple) else ()
    if len(names) != size or not all(isinstance(name, str) for name in names):
        raise DraftError(f"Draft.proposers is {proposers!r}, not a tuple of {size} names")
    return tuple(map(str.__str__, names))
