"""Integer weights of safetensors (GPTQ, AWQ, compressed-tensors): where their numbers lie, and the same in blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from specdec.errors import ModelError
from specdec_runtime.interfaces import BlockLinear
from specdec_runtime.interfaces.blocks import CHUNK, KINDS, BlockNumbers, Bytes, pack

METHOD = "specdec_integers"
"""Name by which `transformers` finds what reads them here."""
_WORD = 32
"""Bits of a word of codes."""
_BITS = (4, 8)
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Places of 8 codes of AWQ in their word."""
Shapes = Mapping[str, tuple[int, ...]]


class Format(NamedTuple):
    """The tensors of a linear map in one kind of checkpoint."""

    codes: str
    scales: str
    zeros: str
    groups: str | None = None
    """Which group each input is in."""
    is_by_input: bool = True
    """Whether tensors have a row for each input, or group of inputs, not for each output."""
    packed: str | None = None
    """Whether codes of neighbouring inputs share a word (`inputs`), or those of neighbouring outputs (`outputs`)."""
    zero_step: int = 0
    """What is added to a zero that is stored."""


FORMATS: Mapping[str, Format] = {
    "gptq": Format("qweight", "scales", "qzeros", "g_idx", packed="inputs", zero_step=1),
    "gptq_v2": Format("qweight", "scales", "qzeros", "g_idx", packed="inputs"),
    "gemm": Format("qweight", "scales", "qzeros", packed="outputs"),
    "pack-quantized": Format(
        "weight_packed",
        "weight_scale",
        "weight_zero_point",
        "weight_g_idx",
        is_by_input=False,
        packed="inputs",
    ),
    "int-quantized": Format("weight", "weight_scale", "weight_zero_point", is_by_input=False),
}
"""By `checkpoint_format` of GPTQ, `version` of AWQ, `format` of compressed-tensors."""


def format_of(held: Mapping[str, Any]) -> Format | str:
    """Return the format of a checkpoint's integer weights, or why they are not read here.

    Args:
        held: `quantization_config` of its configuration.
    """
    method = str(held.get("quant_method"))
    if method == "compressed-tensors":
        return _of_groups(held)
    name = {
        "gptq": held.get("checkpoint_format") or "gptq",
        "awq": held.get("version") or held.get("format") or "gemm",
    }.get(method)
    found = FORMATS.get(str(name).lower())
    if found is None:
        return f"weights of {method}" + (f" in the format {name!r}" if name else "")
    return found if held.get("bits", 4) in _BITS else f"weights of {held['bits']} bits"


def _of_groups(held: Mapping[str, Any]) -> Format | str:
    """Return the format of compressed-tensors' groups of modules, which must be the same for all."""
    for key in ("kv_cache_scheme", "transform_config"):
        if held.get(key):
            return f"{key} of compressed-tensors"
    if (held.get("sparsity_config") or {}).get("format", "dense") != "dense":
        return "sparse weights of compressed-tensors"
    groups = [group for group in (held.get("config_groups") or {}).values() if isinstance(group, Mapping)]
    names = sorted({str(group.get("format") or held.get("format")) for group in groups})
    for group in groups:
        weights = group.get("weights") or {}
        if group.get("input_activations") or group.get("output_activations"):
            return "rounded activations of compressed-tensors"
        if weights.get("type", "int") != "int" or weights.get("num_bits") not in _BITS:
            return f"weights of type {weights.get('type')!r} with {weights.get('num_bits')} bits"
        if weights.get("strategy") not in ("group", "channel", "tensor"):
            return f"scales by {weights.get('strategy')!r}"
    if len(names) == 1 and names[0] in FORMATS and "-" in names[0]:
        return FORMATS[names[0]]
    return f"weights of compressed-tensors in the format {', '.join(names)!r}"


class IntegerLinear(nn.Module):
    """A linear map's tensors as a checkpoint has them, by the checkpoint's names; it is laid out, not run.

    Args:
        linear: the map that it is put in place of.
        form: the format.
        name: the map's name in the checkpoint, for messages.
        shapes: those of its tensors there.
        group_size: inputs of a group, where the configuration says so.

    Raises:
        ModelError: naming a tensor that does not fit.
    """

    def __init__(
        self, linear: nn.Linear, form: Format, name: str, shapes: Shapes, group_size: int | None = None
    ) -> None:
        super().__init__()
        self.bias, self.name, self._form = linear.bias, name, form
        num_out, depth = self.shape = linear.out_features, linear.in_features
        found = shapes.get(form.codes)
        by_bits = {bits: self._shape_of_codes(bits) for bits in (_BITS if form.packed else (8,))}
        fitting = [bits for bits, shape in by_bits.items() if shape == found]
        if not fitting:
            wanted = " or ".join(f"{list(shape)} of {bits} bits" for bits, shape in by_bits.items())
            raise ModelError(f"{name}.{form.codes} is {list(found or ())} where {wanted} belong")
        self.bits = fitting[0]
        scales = shapes.get(form.scales)
        if scales is None:
            raise ModelError(f"{name}.{form.scales} is missing")
        self._num_groups = math.prod(scales) // num_out if math.prod(scales) > 1 else 1
        if math.prod(scales) not in (1, num_out * self._num_groups) or not self._num_groups:
            raise ModelError(
                f"{name}.{form.scales} is {list(scales)}, which is no scale for each of {num_out} outputs"
            )
        self._group_size = group_size if group_size and group_size > 0 else -(-depth // self._num_groups)
        if -(-depth // self._group_size) != self._num_groups:
            raise ModelError(
                f"{name}.{form.scales} is {list(scales)}: {self._num_groups} groups, where {depth} inputs make "
                f"{-(-depth // self._group_size)} of {self._group_size}"
            )
        self._add(form.codes, by_bits[self.bits], torch.int32 if form.packed else torch.int8)
        self._add(form.scales, scales, torch.float32)
        if form.zeros in shapes:
            wanted_zeros = self._shape_of_zeros(scales)
            if shapes[form.zeros] != wanted_zeros:
                raise ModelError(
                    f"{name}.{form.zeros} is {list(shapes[form.zeros])} where {list(wanted_zeros)} belong"
                )
            self._add(form.zeros, wanted_zeros, torch.int32 if form.packed else torch.int8)
        elif form.is_by_input:
            raise ModelError(f"{name}.{form.zeros} is missing")
        if form.groups and form.groups in shapes:
            if shapes[form.groups] != (depth,):
                raise ModelError(
                    f"{name}.{form.groups} is {list(shapes[form.groups])} where [{depth}] belongs"
                )
            self._add(form.groups, (depth,), torch.int32)
        if "weight_shape" in shapes:  # of compressed-tensors, which says again what the model does
            self._add("weight_shape", (2,), torch.int64)

    def _add(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.register_parameter(name, nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=False))

    def _shape_of_codes(self, bits: int) -> tuple[int, int]:
        num_out, depth = self.shape
        if self._form.packed == "inputs":
            depth = -(-depth * bits // _WORD)
        elif self._form.packed == "outputs":
            num_out = -(-num_out * bits // _WORD)
        return (depth, num_out) if self._form.is_by_input else (num_out, depth)

    def _shape_of_zeros(self, scales: tuple[int, ...]) -> tuple[int, ...]:
        if not self._form.packed:
            return scales
        num_words = -(-self.shape[0] * self.bits // _WORD)
        return (self._num_groups, num_words) if self._form.is_by_input else (num_words, self._num_groups)

    def _array(self, name: str) -> npt.NDArray[Any] | None:
        tensor = self._parameters.get(name)
        return None if tensor is None else tensor.detach().cpu().numpy()

    def codes(self) -> Bytes:
        """Return the codes `[N, K]`, from 0 on."""
        form, found = self._form, self._array(self._form.codes)
        assert found is not None
        if not form.packed:
            return found.view(np.uint8) ^ np.uint8(128)
        num_out, depth = self.shape
        if form.packed == "outputs":
            return np.ascontiguousarray(_ordered(_digits(found, self.bits))[:, :num_out].T)
        return _digits(found.T if form.is_by_input else found, self.bits)[:, :depth]

    def group_scales(self) -> npt.NDArray[np.float32]:
        """Return the scales `[N, groups]`."""
        found = self._array(self._form.scales)
        assert found is not None
        shape = self.shape[0], self._num_groups
        if found.size == 1:
            return np.broadcast_to(found.reshape(1, 1), shape)
        return np.ascontiguousarray(found.T) if self._form.is_by_input else found.reshape(shape)

    def group_zeros(self) -> Bytes:
        """Return the codes `[N, groups]` that stand for 0."""
        form, found = self._form, self._array(self._form.zeros)
        shape = self.shape[0], self._num_groups
        if found is None:
            return np.full(shape, 1 << self.bits - 1, np.uint8)
        if not form.packed:
            return np.broadcast_to(
                (found.view(np.uint8) ^ np.uint8(128)).reshape(-1, found.size // shape[0] or 1), shape
            )
        digits = _digits(found if form.is_by_input else found.T, self.bits)
        digits = _ordered(digits) if form.packed == "outputs" else digits
        return (digits[:, : shape[0]].T + np.uint8(form.zero_step)) & np.uint8((1 << self.bits) - 1)

    def groups(self) -> npt.NDArray[np.int64]:
        """Return the group of each input, `[K]`.

        Raises:
            ModelError: if the file has groups that there are not.
        """
        in_order: npt.NDArray[np.int64] = np.arange(self.shape[1]) // self._group_size
        found = self._array(self._form.groups or "")
        if found is None or (found == -1).all():  # none was said
            return in_order
        if found.min() < 0 or found.max() >= self._num_groups:
            raise ModelError(
                f"{self.name}.{self._form.groups} has group {found.max() if found.min() >= 0 else found.min()} where "
                f"{self._num_groups} are scaled"
            )
        return found.astype(np.int64)

    def why_not_in_blocks(self) -> str | None:
        """Return why its weights are no blocks; None if they are."""
        groups, scales = self.groups(), self.group_scales()
        if self._block_size() is None:
            return f"groups of {self._group_size} of {self.shape[1]} inputs are no multiple of {CHUNK}"
        if not np.array_equal(groups, np.arange(self.shape[1]) // self._group_size):
            return f"its groups are in another order than its inputs ({self._form.groups}, act-order)"
        if not np.array_equal(scales.astype(np.float16).astype(np.float32), scales):
            return "its scales are no numbers of 16 bits"
        return None

    def _block_size(self) -> int | None:
        group = self._group_size if self._num_groups > 1 else self.shape[1]
        sizes = [kind.size for name, kind in KINDS.items() if name.startswith(f"Z{self.bits}_")]
        return max((size for size in sizes if group % size == 0 and self.shape[1] % group == 0), default=None)

    def in_blocks(self, dtype: torch.dtype) -> BlockLinear:
        """Return the same map with weights in blocks.

        Args:
            dtype: of the model.
        """
        size, zeros, scales = self._block_size(), self.group_zeros(), self.group_scales().astype(np.float16)
        assert size is not None
        is_even = size == CHUNK and bool((zeros == 1 << self.bits - 1).all())
        kind = f"Q{self.bits}_0" if is_even else f"Z{self.bits}_{size}"
        times = self.shape[1] // size // self._num_groups
        least = None if is_even else np.repeat(-zeros.astype(np.float16), times, 1)
        numbers = BlockNumbers(self.codes(), np.repeat(scales, times, 1), least, None, None)
        with torch.device("meta"):
            made = BlockLinear(kind, *self.shape)
        made.weight = nn.Parameter(torch.from_numpy(pack(numbers, KINDS[kind])), requires_grad=False)
        made.bias, made.input_bits = self.bias, 8 * min(3, dtype.itemsize)
        return made

    def widened(self, dtype: torch.dtype) -> nn.Linear:
        """Return the same map with float weights."""
        device = next(self.parameters()).device
        groups = self.groups()
        codes = self.codes().astype(np.float32) - self.group_zeros().astype(np.float32)[:, groups]
        with torch.device("meta"):
            made = nn.Linear(self.shape[1], self.shape[0], bias=False)
        weight = torch.from_numpy(codes * self.group_scales()[:, groups]).to(device, dtype)
        made.weight, made.bias = nn.Parameter(weight, requires_grad=False), self.bias
        return made


def _digits(words: npt.NDArray[Any], bits: int) -> Bytes:
    """Return the codes `[R, C * 32 / bits]` of words `[R, C]`, lowest first."""
    found = np.ascontiguousarray(words).view(np.uint8)
    if bits == 8:
        return found
    return np.stack((found & 15, found >> 4), -1).reshape(len(found), -1)


def _ordered(codes: Bytes) -> Bytes:
    """Return the codes of AWQ's words in order."""
    rows: Bytes = codes.reshape(len(codes), -1, len(_AWQ_ORDER))[:, :, _AWQ_ORDER].reshape(len(codes), -1)
    return rows
