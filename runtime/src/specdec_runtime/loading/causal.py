"""Loads causal language models from a directory or a hub."""

from __future__ import annotations

import logging
import os
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any

import torch
import transformers  # its Auto classes take half a second when one is used: plugins are listed without

from specdec import EngineOptions
from specdec.config import Checkpoint, is_hub_reachable
from specdec.errors import ConfigError, ModelError
from specdec_runtime.backends import has_native_bfloat16, reads_blocks
from specdec_runtime.loading.admission import check_complete, check_config, check_model
from specdec_runtime.loading.integers import METHOD, format_of
from specdec_runtime.loading.splitting import split_arguments
from specdec_runtime.loading.text_part import is_multimodal, of_text_part, text_part
from specdec_runtime.models import has_blocks
from specdec_runtime.models.unfilled import unfilled

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger("specdec")

_DTYPES = {
    "float32": torch.float32, "float": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16,
    "half": torch.float16, "float64": torch.float64, "double": torch.float64,
}  # fmt: skip
_PACKAGES = {
    "awq": ("gptqmodel",), "bitsandbytes": ("bitsandbytes",), "compressed-tensors": ("compressed-tensors",),
    "fp8": ("kernels",), "gptq": ("gptqmodel", "optimum"), "torchao": ("torchao",),
}  # fmt: skip
"""What `transformers` needs to read weights of a `quant_method`; fp8 on devices alone."""

_WIDENED_BY_NAME = ("compressed-tensors", "fp8", "mxfp4")
"""Methods that `transformers` widens when asked to."""


def load_checkpoint(path: str, options: EngineOptions, device: torch.device) -> PreTrainedModel:
    """Load a causal language model that can be served, in evaluation mode; of a multimodal model, its language model.

    Args:
        path: directory or hub id.
        options: `dtype`, `revision` and the options that restrict what may be loaded.
        device: device to load it on.

    Raises:
        ModelError: if it cannot be loaded or served.
        ConfigError: if `dtype` is not known.
    """
    checkpoint = Checkpoint(path, options.revision)
    if checkpoint.leads_nowhere:
        raise ModelError(checkpoint.problem)
    check_complete(checkpoint)
    checkpoint.check_names()
    offline = offline_arguments(path)
    if offline and checkpoint.config is None:
        raise ModelError(f"{checkpoint.problem}: the hub cannot be reached")
    common: dict[str, Any] = {
        "trust_remote_code": options.trust_remote_code,
        "revision": options.revision,
        **offline,
    }
    try:
        config = transformers.AutoConfig.from_pretrained(path, **common)
    except Exception as error:  # the library's checks of fields raise errors of many types
        raise ModelError(f"cannot read the configuration of {path!r}: {first_line(error)}") from error
    check_config(config, path)
    held = getattr(config, "quantization_config", None) or None
    reads_integers = held is not None and _reads_integers(held, path, options, device)
    has_more = is_multimodal(config)
    dtype = _dtype(options, config, device, is_narrow=reads_integers)
    if reads_integers:
        config.quantization_config = {"quant_method": METHOD, "published": held}
    elif held is not None and options.weights == "widen" and held["quant_method"] in _WIDENED_BY_NAME:
        config.quantization_config = {**held, "dequantize": True}
    part = _places(config, path, options, device)
    auto_class = transformers.AutoModelForMultimodalLM if has_more else transformers.AutoModelForCausalLM
    try:
        loaded: Any = auto_class.from_pretrained(
            path,
            config=config,
            dtype=dtype,
            use_safetensors=None if options.allow_pickle else True,
            ignore_mismatched_sizes=True,  # named by `unfilled`
            output_loading_info=True,
            **common,
            **part,
        )
    except (MemoryError, torch.OutOfMemoryError):  # nothing is wrong with the files
        raise
    except Exception as error:  # the libraries raise errors of many types, most without the path
        hint = " (only safetensors are loaded; allow_pickle=True also unpickles files)"
        hint = hint if isinstance(error, OSError) and not options.allow_pickle else ""
        raise ModelError(f"cannot load {path!r}: {first_line(error)}{hint}") from error
    model, report = loaded
    if has_more:
        report = of_text_part(report, model)
    if (complaint := unfilled(report, model)) is not None:
        raise ModelError(f"{path}: {complaint}")
    if reads_integers:
        from specdec_runtime.loading.integer_models import lay_out

        lay_out(model, path, in_blocks=options.keeps_blocks and reads_blocks(device))
    elif held is not None and getattr(model, "hf_quantizer", None) is None:
        _even_out(model, path, dtype, rounds_inputs=held["quant_method"] == "compressed-tensors")
    if has_more:
        model = text_part(model, path)
        logger.warning("%s is a multimodal model: its language model is loaded, for text only", path)
    check_model(model, path)
    if options.activation_bits is not None:
        from specdec_runtime.models.block_modules import round_inputs

        if not has_blocks(model):
            raise ConfigError(
                f"LLM: activation_bits={options.activation_bits} is for weights that stay in blocks of 4 to 8 bits, and these "
                "do not: leave it out"
            )
        round_inputs(model, options.activation_bits)
    ready: PreTrainedModel = model.eval()
    return ready


def _reads_integers(held: dict[str, Any], path: str, options: EngineOptions, device: torch.device) -> bool:
    """Return whether a quantised checkpoint is read without the packages that `transformers` needs for it.

    Raises:
        ModelError: if `transformers` does not read it, or a package is missing.
    """
    # These take a second or two to import, and few models need them; they register what reads weights.
    from transformers.quantizers.auto import AutoHfQuantizer

    from specdec_runtime.loading import integer_models  # noqa: F401
    from specdec_runtime.models import block_modules  # noqa: F401

    if not AutoHfQuantizer.supports_quant_method(held):
        raise ModelError(f"{path!r}: transformers knows no weights of quant_method {held['quant_method']!r}")
    method, form = str(held.get("quant_method", "")), format_of(held)
    is_on_one = options.tensor_parallel_size == 1 and options.device_map is None
    # On devices transformers has kernels for GPTQ and AWQ. Integers of compressed-tensors it widens, as is done here.
    is_widened = options.weights == "widen" or method == "compressed-tensors"
    if is_on_one and (device.type == "cpu" or is_widened) and not isinstance(form, str):
        return True
    is_read = method == "fp8" and (device.type == "cpu" or is_widened)
    missing = [name for name in _PACKAGES.get(method, ()) if not is_read and not _is_installed(name)]
    if missing:
        ours = method == "fp8" or not isinstance(form, str)
        raise ModelError(
            f"{path!r} has weights of {method}{'' if ours else f' that specdec does not read itself ({form})'}: "
            f"pip install {' '.join(missing)}"
            + (", or give LLM weights='widen'" if is_on_one and not is_widened and ours else "")
        )
    return False


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _even_out(model: PreTrainedModel, path: str, dtype: torch.dtype | str, *, rounds_inputs: bool) -> None:
    """Give weights that `transformers` leaves in the dtype of their file, beside those that it widens, the model's own."""
    wanted = dtype if isinstance(dtype, torch.dtype) else model.dtype
    made: dict[int, torch.nn.Parameter] = {}
    """By the address of the old one, which may be another module's too."""
    for part in model.modules():
        for name, old in [*part.named_parameters(recurse=False)]:
            if old.dtype in (torch.bfloat16, torch.float16) and old.dtype != wanted:
                new = made.setdefault(
                    id(old), torch.nn.Parameter(old.detach().to(wanted), requires_grad=False)
                )
                setattr(part, name, new)
    model.config.dtype = wanted
    logger.warning(
        "%s: its weights are widened to %s, since nothing here multiplies with those of its file%s",
        path, str(wanted).removeprefix("torch."), ", and activations are not rounded" * rounds_inputs,
    )  # fmt: skip


def _places(config: Any, path: str, options: EngineOptions, device: torch.device) -> dict[str, Any]:
    """Return arguments that load a model onto a device, or spread it over several, or load this rank's part of it."""
    if options.device_map is not None:
        return {"device_map": options.device_map}
    if options.tensor_parallel_size == 1:
        return {} if device.type == "cpu" else {"device_map": {"": device}}
    return split_arguments(config, path, options.tensor_parallel_size)


def _dtype(
    options: EngineOptions, config: Any, device: torch.device, *, is_narrow: bool
) -> torch.dtype | str:
    if isinstance(options.dtype, torch.dtype):
        return options.dtype
    if options.dtype != "auto":
        if options.dtype not in _DTYPES:
            raise ConfigError(
                f"LLM: dtype={options.dtype!r} is not one of auto, {', '.join(sorted(_DTYPES))}"
            )
        return _DTYPES[options.dtype]
    stored = getattr(config, "dtype", None) or getattr(config.get_text_config(), "dtype", None)
    is_native = device.type != "cpu" or has_native_bfloat16()
    if stored in (torch.bfloat16, torch.float16) and not is_native:
        logger.warning("dtype='auto': this processor has no 16-bit matrix instructions, running in float32")
        return torch.float32
    # No product of the CPU is fast in float16.
    if is_narrow and stored in (None, torch.float16) and device.type == "cpu":
        return torch.bfloat16 if is_native else torch.float32
    return "auto"


def offline_arguments(model: str) -> dict[str, bool]:
    """Return arguments for `from_pretrained` that disable downloads if the hub cannot be reached.

    Args:
        model: a directory, for which no arguments are needed, or a hub id.
    """
    return {} if os.path.exists(model) or is_hub_reachable() else {"local_files_only": True}


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, with the next one after a colon; or its type."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join([lines[0], *lines[1:2]] if lines[0].endswith(":") else lines[:1])
