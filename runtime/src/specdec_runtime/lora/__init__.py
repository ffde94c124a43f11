"""Adapters (LoRA): reading PEFT's files, and what passes add for the rows of requests that have one."""

from specdec_runtime.lora.adapter import LoadedAdapter
from specdec_runtime.lora.adapters import Adapters
from specdec_runtime.lora.linear_maps import LinearMap, find_linear_maps
from specdec_runtime.lora.products import adapted

__all__ = ["Adapters", "LinearMap", "LoadedAdapter", "adapted", "find_linear_maps"]
