"""Weights in blocks, as they were published: what a block is made of, and how it lies in memory.

A weight is `scale * (code - offset) + least`, rounded to float32 once, which is what `gguf.dequantize` returns, or
`scale * (code + least)` as in GPTQ. Rows of weights lie in tiles of 16, so that a register holds the same inputs of several
outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

Bytes = npt.NDArray[np.uint8]
Halves = npt.NDArray[np.float16]

TILE = 16
"""Rows of weights that lie together."""
CHUNK = 32
"""Codes of a row that lie together: 8 times 4, see `pack`."""
_TILES_AT_A_TIME = 64
"""Tiles that are widened together."""


@dataclass(frozen=True)
class BlockKind:
    """One way to write weights in blocks."""

    bits: int
    """Of a code, which is not negative."""
    size: int = CHUNK
    """Weights of a block, which has a scale of 16 bits, and a least value of 16 bits if `has_least`."""
    group: int = CHUNK
    """Weights of a group. Where a block has several, each has a whole number that multiplies the block's scale, and another
    one for the least value."""
    offset: int = 0
    has_least: bool = False
    is_least_scaled: bool = False
    """Whether the scale multiplies the least value too, which is then the negative code of zero."""

    @property
    def num_groups(self) -> int:
        """Groups of a block that have factors of their own; 0 if the block is one group."""
        return 0 if self.size == self.group else self.size // self.group

    @property
    def header_bytes(self) -> int:
        """Bytes of a tile's block before its codes."""
        return TILE * (2 + self.num_groups) * (1 + self.has_least)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a tile's chunk of codes."""
        return TILE * CHUNK * self.bits // 8

    @property
    def block_bytes(self) -> int:
        """Bytes of a tile's block."""
        return self.header_bytes + self.size // CHUNK * self.chunk_bytes


KINDS: Mapping[str, BlockKind] = {
    "Q4_0": BlockKind(4, offset=8),
    "Q4_1": BlockKind(4, has_least=True),
    "Q5_0": BlockKind(5, offset=16),
    "Q5_1": BlockKind(5, has_least=True),
    "Q8_0": BlockKind(8, offset=128),
    "Q4_K": BlockKind(4, size=256, has_least=True),
    "Q5_K": BlockKind(5, size=256, has_least=True),
    "Q6_K": BlockKind(6, size=256, group=16, offset=32),
    **{
        f"Z{bits}_{size}": BlockKind(bits, size, size, has_least=True, is_least_scaled=True)
        for bits, sizes in ((4, (32, 64, 128)), (8, (32, 128)))
        for size in sizes
    },
}
"""By llama.cpp's names, and those of integers with a scale and a zero for so many weights, as safetensors have them."""


class BlockNumbers(NamedTuple):
    """The numbers of `N` rows of `K` weights."""

    codes: Bytes
    """`[N, K]`."""
    scale: Halves
    """`[N, K / size]` of each block."""
    least: Halves | None
    """Likewise, if the kind has them."""
    scales: npt.NDArray[np.int8] | None
    """`[N, K / group]`, if blocks have groups."""
    leasts: npt.NDArray[np.int8] | None
    """Likewise, if the kind has them."""


def pack(numbers: BlockNumbers, kind: BlockKind) -> Bytes:
    """Return `[N / 16, bytes]`, rows of zeros added: block by block the scales of 16 rows, and least values, whole numbers of
    groups and codes likewise.

    Of a chunk of codes come first the lower 4 bits: byte b of word w has those of codes 8 w + b and 8 w + 4 + b. Then come the
    upper ones: byte b has those of codes b, 4 + b, 8 + b ..., lowest first. Codes of 8 bits lie in order. The words of 16 rows
    lie beside each other.
    """
    num_tiles = -(-len(numbers.codes) // TILE)
    num_blocks = numbers.scale.shape[1]

    def by_tile(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return `[tiles, blocks, M / blocks, 16]` for `[N, M]`."""
        room = np.zeros((num_tiles * TILE, array.shape[1]), array.dtype)
        room[: len(array)] = array
        tiles: npt.NDArray[Any] = room.reshape(num_tiles, TILE, num_blocks, -1).transpose(0, 2, 3, 1)
        return tiles

    parts = [numbers.scale, numbers.least, numbers.scales, numbers.leasts]
    fields = [np.ascontiguousarray(by_tile(part)).view(np.uint8) for part in parts if part is not None]
    codes = by_tile(numbers.codes).reshape(num_tiles, num_blocks, -1, 8, 4, TILE)
    words = [codes]
    if kind.bits < 8:
        words = [codes[:, :, :, ::2] & 15 | codes[:, :, :, 1::2] << 4]
        upper, width = codes >> 4, kind.bits - 4
        if width:
            shares = upper.reshape(*upper.shape[:3], width, 8 // width, 4, TILE)
            shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None, None]
            words.append(np.bitwise_or.reduce(shares << shifts, 4))
    chunks = np.concatenate(words, 3).swapaxes(-1, -2)
    flat = [part.reshape(num_tiles, num_blocks, -1) for part in (*fields, chunks)]
    return np.concatenate(flat, 2).reshape(num_tiles, -1)


def unpack(packed: Bytes, kind: BlockKind) -> BlockNumbers:
    """Return the numbers of all rows of tiles `[tiles, bytes]`, those added included."""
    blocks = packed.reshape(len(packed), -1, kind.block_bytes)
    num_tiles, num_blocks = blocks.shape[:2]
    place = 0

    def by_row(count: int, dtype: Any) -> npt.NDArray[Any]:
        nonlocal place
        size = TILE * count * np.dtype(dtype).itemsize
        part = np.ascontiguousarray(blocks[:, :, place : place + size]).view(dtype)
        place += size
        rows: npt.NDArray[Any] = part.reshape(num_tiles, num_blocks, count, TILE).transpose(0, 3, 1, 2)
        return rows.reshape(num_tiles * TILE, -1)

    scale = by_row(1, np.float16)
    least = by_row(1, np.float16) if kind.has_least else None
    scales = by_row(kind.num_groups, np.int8) if kind.num_groups else None
    leasts = by_row(kind.num_groups, np.int8) if kind.num_groups and kind.has_least else None
    chunks = blocks[:, :, place:].reshape(num_tiles, num_blocks, -1, kind.bits, TILE, 4).swapaxes(-1, -2)
    codes: npt.NDArray[Any] = chunks
    if kind.bits < 8:
        lower = chunks[:, :, :, :4, None]
        codes = np.concatenate((lower & 15, lower >> 4), 4).reshape(*chunks.shape[:3], 8, 4, TILE)
        if width := kind.bits - 4:
            shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None, None]
            upper = (chunks[:, :, :, 4:, None] >> shifts) & (1 << width) - 1
            codes = codes | upper.reshape(codes.shape) << 4
    rows = codes.reshape(num_tiles, -1, TILE).swapaxes(1, 2).reshape(num_tiles * TILE, -1)
    return BlockNumbers(rows, scale, least, scales, leasts)


def widened(packed: torch.Tensor, kind: BlockKind) -> torch.Tensor:
    """Return float32 weights `[16 tiles, K]` of tiles `[tiles, bytes]`, bit for bit those of `gguf.dequantize`."""
    numbers = unpack(packed.numpy(), kind)

    def factors(of_blocks: Halves, of_groups: npt.NDArray[np.int8] | None) -> npt.NDArray[np.float32]:
        wide = of_blocks.astype(np.float32)
        if of_groups is None:
            return wide[..., None]
        return (wide[..., None] * of_groups.reshape(*wide.shape, -1)).reshape(len(wide), -1, 1)

    scales = factors(numbers.scale, numbers.scales)
    codes = numbers.codes.reshape(*scales.shape[:2], -1).astype(np.float32) - np.float32(kind.offset)
    if numbers.least is not None and kind.is_least_scaled:
        weights = (codes + factors(numbers.least, None)) * scales
    elif numbers.least is not None:
        weights = codes * scales + factors(numbers.least, numbers.leasts)
    else:
        weights = codes * scales
    return torch.from_numpy(weights.reshape(len(weights), -1))


class BlockWeights(nn.Module):
    """Weights `[N, K]` that stay in blocks.

    Args:
        kind: name of a kind in `KINDS`.
        num_rows: N.
        depth: K, whole blocks.
    """

    weight: nn.Parameter
    """`[tiles, bytes]` uint8; see `pack`."""

    def __init__(self, kind: str, num_rows: int, depth: int) -> None:
        super().__init__()
        self.kind, self.shape = kind, (num_rows, depth)
        size = depth // KINDS[kind].size * KINDS[kind].block_bytes
        packed = torch.empty((-(-num_rows // TILE), size), dtype=torch.uint8)
        self.weight = nn.Parameter(packed, requires_grad=False)

    def wide_rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Return float32 rows `[T, K]` for ids `[T]`."""
        tiles, places = torch.unique(ids // TILE, return_inverse=True)
        rows = widened(self.weight[tiles], KINDS[self.kind]).view(len(tiles), TILE, -1)
        return rows[places, ids % TILE]

    def extra_repr(self) -> str:
        """Kind and shape."""
        return f"{self.kind}, {list(self.shape)}"


class BlockLinear(BlockWeights):
    """`x @ W.T + b`: here some rows of `W` are widened at a time, backends read the blocks."""

    input_bits = 24
    """How exact a backend takes `x`: 24 bits for float32, 16 for dtypes of 16 bits, 8 to round it, see `rounded`."""

    def __init__(self, kind: str, num_rows: int, depth: int, bias: bool = False) -> None:
        super().__init__(kind, num_rows, depth)
        self.out_features, self.in_features = num_rows, depth
        self.bias = nn.Parameter(torch.empty(num_rows), requires_grad=False) if bias else None

    def first_rows(self, count: int) -> BlockLinear:
        """Return the same of the first rows of weights alone, which share memory."""
        count = min(count, self.out_features)
        with torch.inference_mode(False):
            few = BlockLinear(self.kind, count, self.in_features, self.bias is not None)
        few.weight = nn.Parameter(self.weight[: len(few.weight)], requires_grad=False)
        few.bias = None if self.bias is None else nn.Parameter(self.bias[:count], requires_grad=False)
        few.input_bits = self.input_bits
        return few

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[..., N]` for `x [..., K]`."""
        kind = KINDS[self.kind]
        x = rounded(x) if self.input_bits == 8 else x
        parts = [
            nn.functional.linear(x, widened(tiles, kind).to(x.dtype))
            for tiles in self.weight.split(_TILES_AT_A_TIME)
        ]
        out = torch.cat(parts, -1)[..., : self.out_features]
        return out if self.bias is None else out + self.bias.to(x.dtype)


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Return `x [..., K]` with each block of 32 rounded to 255 multiples of its scale."""
    blocks = x.unflatten(-1, (-1, CHUNK))
    scales = blocks.abs().amax(-1, keepdim=True) / 127
    return torch.where(scales > 0, (blocks / scales).round() * scales, 0.0).flatten(-2)


class BlockEmbedding(BlockWeights):
    """Looks rows up, times `embed_scale`.

    Args:
        kind: see `BlockWeights`.
        num_rows: ditto.
        depth: ditto.
        dtype: of what it returns.
        embed_scale: the factor.
    """

    def __init__(
        self, kind: str, num_rows: int, depth: int, dtype: torch.dtype, embed_scale: float = 1.0
    ) -> None:
        super().__init__(kind, num_rows, depth)
        self.num_embeddings, self.embedding_dim = num_rows, depth
        self.dtype, self.embed_scale = dtype, embed_scale

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return `[..., K]` for ids `[...]`."""
        rows = self.wide_rows(ids.flatten()).to(self.dtype)
        return (rows * self.embed_scale).view(*ids.shape, -1)
