"""Products of torch with weights of 8 or 4 bits as they are stored, for rows of bfloat16 on any device that has them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from specdec.interfaces import Declined
from specdec_runtime.interfaces import QuantizedLinear

_GROUPS = (32, 64, 128, 256)
_ROWS_ON_CPU, _ROWS_ON_DEVICE = 16, 8
"""Rows of weights that torch lays out together."""
_INPUTS, _INPUTS_AT_A_TIME = 32, 16
"""Inputs are a multiple of the first; a device multiplies the second at once, and 8, 4 or 2 times as many lie together."""
_CHUNK = 4096
"""Rows of weights that are laid out at a time."""

Product = Callable[[torch.Tensor], torch.Tensor]


def packed_product(module: QuantizedLinear) -> Product | Declined:
    """Return `[..., N]` for `x [..., K]` in bfloat16, or why torch has no product for the module's weights."""
    is_cpu = module.packed.device.type == "cpu"
    rows = 1 if module.bits == 8 else _ROWS_ON_CPU if is_cpu else _ROWS_ON_DEVICE
    # Of 8 bits torch does not check it, and on the CPU reads beyond the end of other rows.
    if module.in_features % _INPUTS or module.out_features % rows:
        return Declined(f"torch's products are for multiples of {_INPUTS} inputs and {rows} outputs")
    if module.bits == 8:
        return _with_bias(module, _product_of_8_bits(module))
    if module.group_size not in _GROUPS:
        return Declined(f"torch's products of 4 bits are for groups of {_GROUPS} inputs")
    return _with_bias(module, _product_of_4_bits(module, is_cpu=is_cpu))


def _product_of_8_bits(module: QuantizedLinear) -> Product:
    packed, scales = module.packed, module.scales.flatten().bfloat16()
    return lambda x: torch._weight_int8pack_mm(x, packed, scales)


def _product_of_4_bits(module: QuantizedLinear, *, is_cpu: bool) -> Product:
    """Torch's weight is `(number - 8) * scale + zero`, so that zero is the middle of a group's grid."""
    least, scales = module.scales.float().unbind(-1)
    scales_and_zeros = torch.stack((scales, least + 8 * scales), -1).transpose(0, 1).contiguous().bfloat16()
    parts = [_laid_out(numbers, is_cpu=is_cpu) for numbers in module.numbers(_CHUNK)]
    weight, group = torch.cat(parts), module.group_size
    if is_cpu:
        return lambda x: torch._weight_int4pack_mm_for_cpu(x, weight, group, scales_and_zeros)
    return lambda x: torch._weight_int4pack_mm(x, weight, group, scales_and_zeros)


def _laid_out(numbers: torch.Tensor, *, is_cpu: bool) -> torch.Tensor:
    """Return numbers `[n, K]` from 0 to 15 as torch's product reads them."""
    if is_cpu:
        return torch._convert_weight_to_int4pack_for_cpu(numbers.int(), 1)
    tiles = next(count for count in (8, 4, 2) if numbers.shape[1] % (count * _INPUTS_AT_A_TIME) == 0)
    return torch._convert_weight_to_int4pack(numbers[:, ::2] << 4 | numbers[:, 1::2], tiles)


def _with_bias(module: QuantizedLinear, product: Product) -> Product:
    width, size = module.in_features, module.out_features
    bias = None if module.bias is None else module.bias.bfloat16()

    def multiplied(x: torch.Tensor) -> torch.Tensor:
        out = product(x.reshape(-1, width))
        return (out if bias is None else out + bias).reshape(*x.shape[:-1], size)

    return multiplied
