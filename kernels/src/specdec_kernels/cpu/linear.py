"""Products of a few rows with a weight, by compiled loops that read each weight once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, cast
from weakref import ref

import numba
import numpy as np
import torch
from torch import nn

from specdec_kernels.cpu.compiled.target import HOST_FEATURES
from specdec_kernels.cpu.compiled.team import make_team
from specdec_kernels.cpu.loops.blocks import SEGMENT, block_table, multiply_blocks, widen_blocks
from specdec_kernels.cpu.loops.lanes import HAS_BFLOAT16_PAIRS
from specdec_kernels.cpu.loops.product import MAX_PRODUCT_ROWS, Floats, compact, multiply
from specdec_kernels.cpu.loops.quantized import ALIGNMENT, Packed, scales_offset
from specdec_kernels.layers.linear import JoinedLinear
from specdec_runtime.backends import has_native_bfloat16
from specdec_runtime.interfaces import BlockLinear, QuantizedLinear
from specdec_runtime.interfaces.blocks import TILE

_MAX_NATIVE_ROWS = 8
"""If the processor multiplies bfloat16 natively but compiled code cannot, torch wins from fewer rows on."""
_MAX_ROWS_BESIDE_TILES = 32
"""If the processor has bfloat16 matrix tiles (AMX), they win above about this many rows; estimated, not measured."""

_MAX_BLOCK_ROWS, _MAX_BLOCK_ROWS_BESIDE_TILES = 1 << 20, 192
"""Of products with weights in blocks: the fastest for any number of rows, but for more than these where the processor has
bfloat16 matrix tiles, which multiply widened weights."""
_COLUMNS = 1024
"""Weights that are widened at a time, so that they are multiplied from a processor cache."""


class CompiledLinear(JoinedLinear):
    """`x @ W.T + b` for `x [T, in]`: compiled up to `max_product_rows` rows, torch's above.

    Args:
        linears: see `JoinedLinear`.
    """

    group = 0
    """Weights of 4 bits that share a scale; 0 for others."""

    def __init__(self, linears: list[nn.Linear]) -> None:
        super().__init__(linears)
        self.compact = compact(self.weight)
        is_half = self.weight.dtype == torch.bfloat16
        self.is_rounded = is_half and HAS_BFLOAT16_PAIRS
        self.max_product_rows = _max_half_rows() if is_half else MAX_PRODUCT_ROWS
        self.bias_array = None if self.bias is None or self.compact is None else self.bias.float().numpy()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[T, out]`."""
        if self.compact is None or x.shape[0] > self.max_product_rows:
            return super().__call__(x)
        out = self._multiply(x.float().contiguous().numpy())
        if self.bias_array is not None:
            out += self.bias_array
        return torch.from_numpy(out).to(x.dtype)

    def compile(self) -> None:
        """Compile what a call runs, else the first request waits for it; compiled passes only read the weights."""
        if self.compact is not None:
            self._multiply(np.zeros((1, self.weight.shape[1]), np.float32))

    def _multiply(self, x: Floats) -> Floats:
        assert self.compact is not None
        out = np.empty((x.shape[0], self.weight.shape[0]), np.float32)
        multiply(x, self.compact, out, self.is_rounded)
        return out


class QuantizedProduct(JoinedLinear):
    """The same with weights of 8 or 4 bits, for the compiled passes of drafts; the modules then share the joined memory.

    Args:
        linears: modules with the same input, of the same bits and group size.
    """

    max_product_rows = MAX_PRODUCT_ROWS
    is_rounded = False

    def __init__(self, linears: list[QuantizedLinear]) -> None:
        self.weight = joined_quantized(linears)
        self.num_out = self.weight.shape[0]
        self.group = linears[0].group_size if linears[0].bits == 4 else 0
        self.compact: Packed | None = self.weight.numpy()
        biases = [linear.bias for linear in linears]
        self.bias = torch.cat([b for b in biases if b is not None]) if None not in biases else None
        self.bias_array = None if self.bias is None else self.bias.float().numpy()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[T, out]`."""
        raise NotImplementedError("only compiled passes use it")


def joined_quantized(linears: list[QuantizedLinear]) -> torch.Tensor:
    """Return stacked numbers with their scales behind them, as compiled products read them, and have the modules use these."""
    packed = torch.cat([linear.packed for linear in linears])
    scales = torch.cat([linear.scales for linear in linears])
    offset = scales_offset(*packed.shape)
    memory = torch.empty(offset + scales.nbytes + ALIGNMENT, dtype=packed.dtype)
    weight = memory[: packed.numel()].view(packed.shape)
    behind = memory[offset : offset + scales.nbytes].view(scales.dtype).view(scales.shape)
    weight.copy_(packed)
    behind.copy_(scales)
    start = 0
    for linear in linears:
        end = start + linear.out_features
        linear.packed, linear.scales = weight[start:end], behind[start:end]
        start = end
    return weight


class BlockProduct(JoinedLinear):
    """The same with weights in blocks; for more than `max_product_rows` torch multiplies some at a time, widened.

    Args:
        linears: modules with the same input; their kinds may differ.
    """

    is_rounded = False

    def __init__(self, linears: list[BlockLinear]) -> None:
        self.weights = [linear.weight for linear in linears]
        self.num_out = sum(linear.out_features for linear in linears)
        self.num_wide_bytes = 2 * self.num_out * linears[0].in_features
        self.group = max(linear.input_bits for linear in linears) // 8
        has_tiles = self.group == 2 and HOST_FEATURES.get("amx-bf16")
        self.max_product_rows = _MAX_BLOCK_ROWS_BESIDE_TILES if has_tiles else _MAX_BLOCK_ROWS
        self._segments = [(linear.kind, linear.weight.data_ptr(), linear.out_features) for linear in linears]
        self.compact = block_table(self._segments, self.group)
        self._table, self._num_digits = self.compact, self.group
        biases = [linear.bias for linear in linears]
        self.bias = torch.cat([b for b in biases if b is not None]) if None not in biases else None
        self.bias_array = None if self.bias is None else self.bias.float().numpy()
        self._team = make_team(numba.get_num_threads())

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[T, out]`."""
        if x.shape[0] > self.max_product_rows and x.dtype == torch.bfloat16:
            return self._by_widening(x)
        num_digits = self.group
        if num_digits > 1:
            num_digits = 2 if x.dtype.itemsize == 2 else 3
        if num_digits != self._num_digits:  # of a model in another dtype, for comparison
            self._table, self._num_digits = block_table(self._segments, num_digits), num_digits
        out = np.empty((x.shape[0], self.num_out), np.float32)
        given = x.float().contiguous().numpy()
        multiply_blocks(self._team.ctypes.data, given, self._table.ctypes.data, num_digits, out)
        return torch.from_numpy(out if self.bias_array is None else out + self.bias_array).to(x.dtype)

    def _by_widening(self, x: torch.Tensor) -> torch.Tensor:
        parts, segments = [], self._table.ctypes.data + self._table.itemsize
        for index, (_, _, num_rows) in enumerate(self._segments):
            segment = segments + index * SEGMENT * self._table.itemsize
            for start in range(0, num_rows, _COLUMNS):
                count = min(_COLUMNS, num_rows - start)
                wide = np.empty((x.shape[1], -(-count // TILE) * TILE), np.uint16)
                widen_blocks(self._team.ctypes.data, segment, start // TILE, wide)
                parts.append((x @ torch.from_numpy(wide).view(torch.bfloat16))[:, :count])
        out = torch.cat(parts, 1)
        return out if self.bias is None else out + self.bias.to(x.dtype)


Product = CompiledLinear | QuantizedProduct | BlockProduct


def compiled_linear(linears: Sequence[nn.Linear | BlockLinear]) -> Product:
    """Return the compiled product of modules with the same input."""
    first: nn.Module = linears[0]
    if isinstance(first, BlockLinear):
        return BlockProduct(cast(list[BlockLinear], linears))
    if isinstance(first, QuantizedLinear):
        return QuantizedProduct(cast(list[QuantizedLinear], linears))
    return CompiledLinear(cast(list[nn.Linear], linears))


class ModuleProduct:
    """The forward of a linear module `[..., in] -> [..., out]` by its compiled product.

    Torch runs it where gradients are wanted, and where the module's weight is another one now. A copy of the module has
    torch's forward.

    Args:
        module: the module, frozen.
    """

    def __init__(self, module: nn.Linear | BlockLinear) -> None:
        self._module = ref(module)  # which has this as its forward
        self._product = compiled_linear([module])
        if isinstance(self._product, CompiledLinear):
            self._product.compile()
        self._address = module.weight.data_ptr()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[..., out]` for `x [..., in]`."""
        module = self._module()
        if module is not None and (x.requires_grad or module.weight.data_ptr() != self._address):
            own: Any = type(module).forward  # not this
            return cast(torch.Tensor, own(module, x))
        if x.dim() == 2:
            return self._product(x)
        out = self._product(x.reshape(-1, x.shape[-1]))
        return out.reshape(*x.shape[:-1], out.shape[-1])

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return torch's forward of the copied module."""
        module = memo[id(self._module())]
        return MethodType(type(module).forward, module)


def _max_half_rows() -> int:
    """Return the maximum number of rows for which compiled products of bfloat16 weights are the fastest."""
    if HOST_FEATURES.get("amx-bf16"):
        return _MAX_ROWS_BESIDE_TILES
    return _MAX_NATIVE_ROWS if has_native_bfloat16() and not HAS_BFLOAT16_PAIRS else MAX_PRODUCT_ROWS
