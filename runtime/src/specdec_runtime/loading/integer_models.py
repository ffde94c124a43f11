"""Loads models whose linear maps are integers in their checkpoint: a quantisation method of our own reads them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from specdec.errors import ModelError
from specdec_runtime.interfaces import BlockLinear
from specdec_runtime.loading.integers import METHOD, Format, IntegerLinear, Shapes, format_of
from specdec_runtime.models.block_modules import BlockConfig

logger = logging.getLogger("specdec")


@register_quantization_config(METHOD)
class IntegerConfig(QuantizationConfigMixin):
    """What a checkpoint says of its integers.

    Args:
        published: `quantization_config` as it was published.
        more: what the base class keeps.
    """

    def __init__(self, published: Mapping[str, Any], **more: Any) -> None:
        self.quant_method = METHOD  # type: ignore[assignment]  # an enumeration of the library's own
        self.published = dict(published)


@register_quantizer(METHOD)
class IntegerQuantizer(HfQuantizer):
    """Puts an `IntegerLinear` in place of each linear map whose tensors are in the files; `lay_out` comes after loading."""

    quantization_config: IntegerConfig
    requires_calibration = False
    is_trainable = False

    def is_serializable(self) -> bool:
        """Whether such a model can be saved."""
        return False

    def _process_model_before_weight_loading(
        self, model: PreTrainedModel, checkpoint_files: Sequence[str] = (), **_: Any
    ) -> None:
        published = self.quantization_config.published
        form = cast(Format, format_of(published))
        size = None if form.groups is None else published.get("group_size")
        names = _Names(model)
        for name, shapes in _linear_maps(checkpoint_files, form).items():
            place = names.of_module(name)
            linear = names.modules.get(place)
            if not isinstance(linear, nn.Linear):
                raise ModelError(
                    f"{name} has integer weights, and {type(model).__name__} has no linear map {place!r}: experts and their "
                    "like are not read"
                )
            with torch.device("meta"):
                model.set_submodule(place, IntegerLinear(linear, form, name, shapes, size))


class _Names:
    """Finds modules by their names in a checkpoint, as `transformers` renames tensors."""

    def __init__(self, model: PreTrainedModel) -> None:
        mapping = get_model_conversion_mapping(model)
        self._renamings = [each for each in mapping if isinstance(each, WeightRenaming)]
        self._converters = [each for each in mapping if isinstance(each, WeightConverter)]
        self._prefix, self._tensors = model.base_model_prefix, model.state_dict()
        self.modules = dict(model.named_modules())

    def of_module(self, name: str) -> str:
        """Return a module's name in the model."""
        if name in self.modules:
            return name
        tensor, _ = rename_source_key(
            f"{name}.weight", self._renamings, self._converters, self._prefix, self._tensors
        )
        return tensor.removesuffix(".weight")


def _linear_maps(files: Sequence[str], form: Format) -> dict[str, Shapes]:
    """Return the shapes of the tensors of each linear map with integer weights, by names in safetensors files."""
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}
    is_integer: dict[str, bool] = {}
    for path in files:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118  # it is no mapping
                module, _, part = name.rpartition(".")
                tensor = file.get_slice(name)
                shapes.setdefault(module, {})[part] = tuple(tensor.get_shape())
                if part == form.codes:
                    is_integer[module] = tensor.get_dtype().startswith("I")
    return {module: shapes[module] for module, is_one in is_integer.items() if is_one}


def lay_out(model: PreTrainedModel, name: str, *, in_blocks: bool) -> None:
    """Replace the maps of integers of a loaded model by ones that run, all in blocks or all widened.

    Args:
        model: the model, whose modules are replaced one after another.
        name: path or hub id, for messages.
        in_blocks: whether weights stay integers, if all can.

    Raises:
        ModelError: if a tensor has numbers that it cannot have.
    """
    found = {place: part for place, part in model.named_modules() if isinstance(part, IntegerLinear)}
    places, dtype = list(found), model.dtype
    reasons = ((part.why_not_in_blocks(), part.name) for part in found.values() if in_blocks)
    reason = next((f"{where}: {why}" for why, where in reasons if why), None)
    if reason is not None:
        logger.warning(
            "%s: its weights are widened to %s, and take up to %d times the memory, since products read none like those of %s",
            name, str(dtype).removeprefix("torch."), 8 * dtype.itemsize // min(part.bits for part in found.values()), reason,
        )  # fmt: skip
    found.clear()  # one map's tensors are there twice at a time, not all
    kinds = {}
    for place in places:
        part = cast(IntegerLinear, model.get_submodule(place))
        made: nn.Module = part.widened(dtype) if reason or not in_blocks else part.in_blocks(dtype)
        if isinstance(made, BlockLinear):
            kinds[place] = made.kind
        model.set_submodule(place, made)
    quantizer: Any = model.hf_quantizer
    quantizer.remove_quantization_config(model)
    if kinds:
        model.config.quantization_config = BlockConfig(kinds).to_dict()
    model.quantization_method = quantizer.quantization_config.published["quant_method"]
