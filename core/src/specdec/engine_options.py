"""Engine options: the arguments of `LLM` that do not belong to one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from numbers import Integral
from typing import Any

from specdec.errors import ConfigError
from specdec.field_docs import show_fields
from specdec.lora import LoRARequest, named_adapters

DEFAULT_SCORER = "transformers"
_INTEGERS = {
    "seed": None, "max_model_len": 2, "max_num_seqs": 1, "max_num_batched_tokens": 1, "kv_cache_memory_bytes": None,
    "num_gpu_blocks_override": 1, "block_size": 1, "tensor_parallel_size": 1, "max_lora_rank": 1, "max_cpu_loras": 1,
}  # fmt: skip
"""The least value of each, where there is one."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Arguments of `LLM`, with vLLM's names and meanings where both have them.

    Raises:
        ConfigError: naming the argument, its value and what is allowed.
    """

    model: Any
    """A path, a hub id, `zoo`, `smollm2`, a GGUF file, a loaded `PreTrainedModel`, or a `LoadedTarget` that
    several engines share."""
    gguf_file: str | None = None
    """Name of the GGUF file in the folder or hub repository `model`, if there are several."""
    tokenizer: Any = None
    """A path, a hub id or a tokenizer; None means the model's own."""
    revision: str | None = None
    """Branch, tag or commit of a hub repository."""
    dtype: Any = "auto"
    """`auto`, `float32`, `bfloat16`, `float16`, `float64` or a `torch.dtype`."""
    weights: str = "published"
    """`published`: weights of 4 to 8 bits (GGUF, GPTQ, AWQ, compressed-tensors) stay as small as in the file, where a
    backend multiplies with them (on the CPU, with `specdec-kernels`), and `dtype` is that of activations; `widen`:
    they are dequantised to `dtype`, as everywhere else."""
    activation_bits: int | None = None
    """8: inputs of products with weights in blocks are rounded to 8 bits by block of 32, which is faster and less
    exact; None: as exact as `dtype`."""
    seed: int | None = None
    """Seed for requests without their own seed; None means fresh noise in every run."""
    max_model_len: int | None = None
    """Maximum context length, output included; None means the model's."""
    max_num_seqs: int = 64
    """Maximum number of requests that run at once."""
    max_num_batched_tokens: int = 2048
    """Maximum number of rows in one pass: prompt tokens, last committed tokens and drafted tokens."""
    scheduling_policy: str = "fcfs"
    """`fcfs`: first come, first served; `priority`: requests with a lower `priority` run first and are
    preempted last."""
    async_scheduling: bool | None = None
    """Launch a step before the tokens of the one before are read, where nothing on the host needs them; None means on devices
    other than the CPU. Texts are the same."""
    enforce_eager: bool = False
    """Run the model's own forward, without fused layers or captured graphs."""
    gpu_memory_utilization: float = 0.9
    """Fraction of a GPU's memory that this engine may take for weights, KV caches and captured graphs."""
    kv_cache_memory_bytes: int | None = None
    """Bytes for KV caches; None means what fits (on the CPU: a quarter of the free memory)."""
    num_gpu_blocks_override: int | None = None
    """Number of KV cache blocks, on any device, whatever memory they need; None means as many as fit."""
    enable_prefix_caching: bool = True
    """Reuse the keys and values of equal prefixes."""
    block_size: int = 16
    """Tokens per block of the prefix cache."""
    trust_remote_code: bool = False
    """Run code from the model's repository."""
    allow_pickle: bool = False
    """Also load checkpoints that are not safetensors; unpickling runs code from the file."""
    device: str | None = None
    """A torch device; None means a GPU if there is one, else the CPU."""
    device_map: Any = None
    """`auto`, or a mapping from module names to devices: layers on several devices, which run one after
    another."""
    tensor_parallel_size: int = 1
    """Number of processes that share the model, one device each; the engine starts them."""
    scorer: str = DEFAULT_SCORER
    """The scorer, which runs the target: name of a plugin (`specdec.scorers`), or path of a class,
    `./file.py:Class`."""
    attention_backend: str = "auto"
    """Attention implementation: `sdpa` is torch's, on any device; `triton`, or the name of another backend, is that
    backend's; `auto` uses the first backend's that runs and agrees with torch when the model is loaded, and torch's
    otherwise."""
    deterministic: bool = False
    """Batch-invariant logits: each token gets bitwise the same logits whatever else is in the batch and
    however many tokens are verified at once. The same seed then gives the same text with and without
    speculation, in bfloat16 too."""
    strict_drafts: bool = False
    """Raise on malformed drafts instead of cutting them."""
    reasoning_config: Any = None
    """How the model marks its reasoning, for `thinking_token_budget` and counts of reasoning tokens: `reasoning_start_str`,
    `reasoning_end_str`, and if the latter has a sentence before the end marker, that alone as `reasoning_close_str`."""
    enable_lora: bool = False
    """Serve adapters (LoRA) that requests bring as `LoRARequest`; on without saying so with `lora_modules`."""
    lora_modules: Any = None
    """Adapters to load now, by the names that requests choose them by: a mapping from names to directories or hub ids in
    PEFT's format, or vLLM's list of `NAME=PATH`."""
    max_lora_rank: int = 16
    """The highest rank of an adapter; one with a higher rank is refused."""
    max_cpu_loras: int = 16
    """How many adapters that requests brought stay loaded; the one that was not used for longest leaves."""
    skip_tokenizer_init: bool = False
    """Load no tokenizer: prompts are token ids and outputs have no text."""

    def __post_init__(self) -> None:
        for name, least in _INTEGERS.items():
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
                raise ConfigError(f"LLM: {name}={value!r} must be an integer")
            if value is not None and least is not None and value < least:
                raise ConfigError(f"LLM: {name}={value} must be at least {least}")
        if self.weights not in ("published", "widen"):
            raise ConfigError(f"LLM: weights={self.weights!r} must be one of published, widen")
        if self.activation_bits not in (None, 8):
            raise ConfigError(f"LLM: activation_bits={self.activation_bits!r} must be 8, or left out")
        share = self.gpu_memory_utilization
        if isinstance(share, bool) or not isinstance(share, float | int):
            raise ConfigError(f"LLM: gpu_memory_utilization={share!r} must be a number")
        if not isinstance(self.scorer, str):
            raise ConfigError(f"LLM: scorer={self.scorer!r} must be a plugin's name or the path of a class")
        if self.device is not None:
            _check_device(self.device)
        if not 0.0 < share <= 1.0:
            raise ConfigError(f"LLM: gpu_memory_utilization={share} must be in (0, 1]")
        if not isinstance(self.attention_backend, str):
            raise ConfigError(f"LLM: attention_backend={self.attention_backend!r} must be the name of one")
        if self.scheduling_policy not in ("fcfs", "priority"):
            raise ConfigError(
                f"LLM: scheduling_policy={self.scheduling_policy!r} must be one of fcfs, priority"
            )
        if self.device_map is not None:
            _check_device_map(self)
        if self.tensor_parallel_size > 1 and self.scorer != DEFAULT_SCORER:
            raise ConfigError(
                f"LLM: scorer={self.scorer!r} runs in one process: leave out tensor_parallel_size={self.tensor_parallel_size}"
            )
        if self.serves_adapters and (self.deterministic or self.tensor_parallel_size > 1):
            other = "deterministic" if self.deterministic else "tensor_parallel_size"
            raise ConfigError(
                f"LLM: {other}={getattr(self, other)} does not go with adapters (enable_lora, lora_modules): passes with them "
                "run by the model's own forward on one device, and their bits depend on the batch"
            )
        if self.deterministic and self.enforce_eager:
            raise ConfigError(
                "LLM: deterministic=True needs fused layers, and enforce_eager=True runs the model's own: give one of the two"
            )

    @property
    def serves_adapters(self) -> bool:
        """Whether requests may have an adapter."""
        return self.enable_lora or bool(self.adapters)

    @cached_property
    def adapters(self) -> dict[str, LoRARequest]:
        """The adapters of `lora_modules`, by name."""
        return {} if self.lora_modules is None else named_adapters(self.lora_modules)

    @property
    def keeps_blocks(self) -> bool:
        """Whether weights may stay in blocks of few bits: on one CPU, in forms of backends."""
        import torch  # see `_check_device`

        is_spread = self.device_map is not None or self.tensor_parallel_size > 1
        device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return self.weights == "published" and device.type == "cpu" and not (is_spread or self.enforce_eager)


show_fields(EngineOptions)


def _check_device_map(options: EngineOptions) -> None:
    if not isinstance(options.device_map, str | Mapping):
        raise ConfigError(
            f"LLM: device_map={options.device_map!r} must be 'auto' or name modules and devices"
        )
    if options.device is not None or options.tensor_parallel_size > 1:
        other = "device" if options.device is not None else "tensor_parallel_size"
        raise ConfigError(f"LLM: device_map and {other} both say where the model is: give one of the two")
    if find_spec("accelerate") is None:
        raise ConfigError("LLM: device_map needs accelerate: pip install accelerate")


def _check_device(name: object) -> None:
    import torch  # not with this module: see `specdec.frontend.construction`

    try:
        torch.empty(0, device=name)  # type: ignore[call-overload]  # the caller may have given anything
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise ConfigError(
            f"LLM: device={name!r} cannot be used here ({reason}): use 'cpu', or leave device out"
        ) from None
