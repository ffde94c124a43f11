"""The blocks of GGUF tensors: where the numbers lie that `specdec_runtime.interfaces.blocks` has laid out for products."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from specdec_runtime.interfaces.blocks import KINDS, BlockNumbers, Bytes


class _Published(NamedTuple):
    """The parts of a block, in order, and how its codes lie."""

    parts: tuple[str, ...]
    """`scale` and `least`: 16 bits each; `factors`: 6 bits for each scale and least value of 8 groups; `scales`: signed bytes;
    `lower` and `upper`: bits of codes; `codes`: signed bytes."""
    lower_span: int = 16
    """Bytes whose lower halves are codes one after another, and then their upper halves."""
    upper_span: int = 1
    """The same of upper bits: the lowest of each byte first."""


_PUBLISHED = {
    "Q4_0": _Published(("scale", "lower")),
    "Q4_1": _Published(("scale", "least", "lower")),
    "Q5_0": _Published(("scale", "upper", "lower")),
    "Q5_1": _Published(("scale", "least", "upper", "lower")),
    "Q8_0": _Published(("scale", "codes")),
    "Q4_K": _Published(("scale", "least", "factors", "lower"), 32),
    "Q5_K": _Published(("scale", "least", "factors", "upper", "lower"), 32, 32),
    "Q6_K": _Published(("lower", "upper", "scales", "scale"), 64, 32),
}


def numbers_of(blocks: Bytes, name: str) -> BlockNumbers:
    """Return the numbers in a tensor.

    Args:
        blocks: `[N, bytes]`, as `gguf.GGUFReader` returns them.
        name: name of its type, one of `KINDS`.
    """
    kind, published = KINDS[name], _PUBLISHED[name]
    sizes = {
        "scale": 2, "least": 2, "factors": 12, "scales": kind.num_groups, "lower": kind.size // 2,
        "upper": kind.size * (kind.bits - 4) // 8, "codes": kind.size,
    }  # fmt: skip
    ends = np.cumsum([sizes[part] for part in published.parts])
    parts = blocks.reshape(len(blocks), -1, ends[-1])
    found = dict(zip(published.parts, np.split(parts, ends[:-1], axis=2), strict=True))
    num_rows = len(blocks)

    def field(part: str, dtype: Any) -> npt.NDArray[Any]:
        numbers: npt.NDArray[Any] = np.ascontiguousarray(found[part]).view(dtype)
        return numbers.reshape(num_rows, -1)

    def bits(part: str, span: int, width: int) -> Bytes:
        shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
        shares = found[part].reshape(num_rows, -1, 1, span) >> shifts & np.uint8((1 << width) - 1)
        return shares.reshape(num_rows, -1)

    codes: Bytes
    if "codes" in found:
        codes = field("codes", np.uint8) ^ np.uint8(128)
    else:
        codes = bits("lower", published.lower_span, 4)
    if "upper" in found:
        codes |= bits("upper", published.upper_span, kind.bits - 4) << np.uint8(4)
    scale, scales, leasts = field("scale", np.float16), None, None
    least = field("least", np.float16) if kind.has_least else None
    if "scales" in found:
        scales = field("scales", np.int8)
    if "factors" in found and least is not None:
        scales, leasts = _factors(found["factors"])
        least = -least  # which is subtracted there
    return BlockNumbers(codes, scale, least, scales, leasts)


def _factors(packed: Bytes) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]:
    """Return the whole numbers `[N, groups]` of scales and of least values in `[N, blocks, 12]` bytes."""
    first, second, rest = np.split(packed, 3, axis=2)
    scales = np.concatenate((first & 63, rest & 15 | first >> 2 & 48), 2)
    leasts = np.concatenate((second & 63, rest >> 4 | second >> 2 & 48), 2)
    return scales.reshape(len(packed), -1).view(np.int8), leasts.reshape(len(packed), -1).view(np.int8)
