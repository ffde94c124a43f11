"""Variants of each engine, with or without a speculation method."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from common.pool import EngineHome
from common.speculation import Speculation
from common.variant import Variant

VLLM_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
)
VLLM_MODES: Mapping[str, bool] = MappingProxyType({"compiled": False, "eager": True})
"""`enforce_eager` for each mode."""


def ours(dtype: str, speculation: Speculation | None = None) -> Variant:
    """Return a specdec variant."""
    if speculation is None:
        return Variant.make("specdec", "none", dtype)
    return Variant.make("specdec", speculation.name, dtype, {"speculative_config": speculation.ours})


def transformers(dtype: str, speculation: Speculation | None = None) -> Variant:
    """Return a variant of transformers' `generate`, for a method that it has."""
    if speculation is None:
        return Variant.make("transformers", "none", dtype)
    assert speculation.transformers is not None
    return Variant.make("transformers", speculation.name, dtype, speculation.transformers)


def vllm(
    dtype: str, speculation: Speculation | None = None, mode: str = "compiled", has_statistics: bool = False
) -> Variant:
    """Return a vLLM variant.

    Args:
        dtype: of weights and arithmetic.
        speculation: None for no speculation.
        mode: one of `VLLM_MODES`.
        has_statistics: whether it counts its drafts, if it drafts.
    """
    arguments: dict[str, object] = {"enforce_eager": VLLM_MODES[mode]}
    settings: dict[str, object] = {"arguments": arguments}
    name = "none"
    if speculation is not None:
        name = speculation.name
        settings["speculative_config"] = speculation.vllm
        if has_statistics:
            arguments["disable_log_stats"] = False
    return Variant.make("vllm", f"{name} {mode}", dtype, settings)


def adapted(
    dtype: str,
    speculation: Speculation,
    mode: str = "compiled",
    has_statistics: bool = False,
    *,
    is_adaptive: bool = False,
) -> Variant:
    """Return vLLM with a specdec proposer through the adapter `specdec-vllm`; other arguments as in `vllm`."""
    config = {**speculation.ours, "adaptive": True} if is_adaptive else speculation.ours
    arguments: dict[str, object] = {
        "enforce_eager": VLLM_MODES[mode],
        "worker_cls": "specdec_vllm.CPUWorker",
        "additional_config": {"specdec": config},
    }
    if has_statistics:
        arguments["disable_log_stats"] = False
    place = {
        "method": "custom_class",
        "model": "specdec_vllm.Proposer",
        "num_speculative_tokens": speculation.ours["num_speculative_tokens"],
    }
    settings: dict[str, object] = {"arguments": arguments, "speculative_config": place}
    name = f"{speculation.name} {'adaptive ' if is_adaptive else ''}{mode} specdec"
    return Variant.make("vllm", name, dtype, settings)


def llama_cpp(
    dtype: str,
    file: Path,
    stored: str,
    speculation: Speculation | None = None,
    *,
    is_as_shipped: bool = False,
) -> Variant:
    """Return a variant of llama.cpp through llama-cpp-python, for a method that it has.

    Args:
        dtype: of our engine; with float32 llama.cpp keeps its KV cache in float32 too.
        file: the GGUF file.
        stored: the type of its weights, for tables.
        speculation: None for no speculation.
        is_as_shipped: whether its weights are the shipped ones; those of the model's folder were rounded.
    """
    settings: dict[str, object] = {"file": str(file)}
    name = "none"
    if speculation is not None:
        assert speculation.llama_cpp is not None
        name = speculation.name
        settings["prompt_lookup"] = speculation.llama_cpp
    weights = stored if is_as_shipped else ""
    return Variant.make("llama_cpp", f"{name} {stored}", dtype, settings, weights=weights)


def vllm_home(python: Path, preload: str | None = None) -> EngineHome:
    """Return vLLM's interpreter and environment.

    Args:
        python: interpreter of its environment.
        preload: value of `LD_PRELOAD`; None for Intel's OpenMP if the environment has it, as vLLM recommends for
            speculation.
    """
    if preload is None:
        openmp = python.absolute().parent.parent / "lib" / "libiomp5.so"
        preload = str(openmp) if openmp.is_file() else ""
    return _home(python, {**VLLM_ENVIRONMENT, **({"LD_PRELOAD": preload} if preload else {})})


def llama_cpp_home(python: Path) -> EngineHome:
    """Return llama.cpp's interpreter and environment.

    Args:
        python: interpreter of its environment.
    """
    return _home(python, {})


def _home(python: Path, environment: Mapping[str, str]) -> EngineHome:
    if not python.exists():
        raise SystemExit(
            f"{python}: no interpreter there; benchmarks/peers/README.md says how to make its environment"
        )
    # The interpreter of a virtual environment is a symbolic link that must not be resolved.
    return EngineHome(str(python.absolute()), environment)
