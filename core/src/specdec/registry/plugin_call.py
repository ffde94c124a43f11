"""Calls a plugin's code and puts back the settings of the process that it changed and that a step depends on."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from operator import is_
from typing import Any, TypeVar

import torch
from torch.utils import _device as device_modes
from torch.utils._device import DeviceContext

from specdec.errors import is_interrupt

__all__ = ["call_plugin", "importing"]

logger = logging.getLogger("specdec")

Result = TypeVar("Result")

_handler_of: Callable[[int], Any] = import_module("_signal").getsignal
"""`signal.getsignal` without the search for an enum's member, which takes ten times as long."""
_SIGNALS = tuple(
    getattr(signal, name)
    for name in (
        "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCHLD",
    )
    if hasattr(signal, name)
)  # fmt: skip
"""Those that a process gets from itself, its user or its children; reading each takes time in every step."""
_TIMERS = {"SIGALRM": "ITIMER_REAL", "SIGVTALRM": "ITIMER_VIRTUAL", "SIGPROF": "ITIMER_PROF"}
_MAX_TRIES = 100
_left: list[object] = []
"""Keeps guards alive that would undo what they set."""

_WRITE: dict[str, Callable[[Any], object]] = {
    "inference mode": lambda is_on: _left.append(torch._C._InferenceMode(is_on)),
    "grad mode": torch.set_grad_enabled,
    "default dtype": torch.set_default_dtype,
    "deterministic algorithms": torch.set_deterministic_debug_mode,
    "number of threads": torch.set_num_threads,
    "matmul precision": torch.set_float32_matmul_precision,
    "autocast": lambda is_on: torch.set_autocast_enabled("cpu", is_on),
    "dispatch modes": lambda count: _drop_dispatch_modes(count),
    "function transforms": torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth,
    "attention kernels": lambda enabled: _set_attention_kernels(enabled),
}
"""Puts back each of the values that `_settings` reads, in its order."""


def call_plugin(function: Callable[..., Result], *arguments: Any) -> tuple[Result, list[str]]:
    """Call a plugin's function; returns its result and the names of the settings that it changed, which are put back.

    They are put back as well if it raises.
    """
    objects, values = _settings()
    depth, trace, profile = sys.getrecursionlimit(), sys.gettrace(), sys.getprofile()
    changed: list[str] = []
    interruption: BaseException | None = None
    num_tries = _MAX_TRIES
    try:
        result = function(*arguments)
    finally:
        while num_tries:  # no call stands outside `try`, since a signal handler may raise after it
            try:
                # Here, where no further frame is needed: these may make the next one raise.
                if sys.gettrace() is not trace:
                    sys.settrace(trace)
                    changed.append("trace function")
                if sys.getprofile() is not profile:
                    sys.setprofile(profile)
                    changed.append("profile function")
                if sys.getrecursionlimit() != depth:
                    sys.setrecursionlimit(depth)
                    changed.append("recursion limit")
                now, after = _settings()
                if after != values or len(now) != len(objects) or not all(map(is_, now, objects)):
                    changed += _put_back(objects, values)
                break
            except BaseException as error:  # a signal handler ran in the midst of it
                num_tries -= 1
                if interruption is None or is_interrupt(error):
                    interruption = error
        if interruption is not None and is_interrupt(interruption):
            raise interruption
    if interruption is not None:
        raise interruption
    return result, changed


def importing(what: str, function: Callable[[], Result]) -> Result:
    """Call a function that imports plugins; what their modules change of the process is put back, with a warning."""
    result, changed = call_plugin(function)
    if changed:
        logger.warning(
            "%s changed settings of the process when it was imported: %s; put back", what, ", ".join(changed)
        )
    return result


def _settings() -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the signal handlers and then the modes that torch's functions pass through, of which a default device is one;
    and the values that `_WRITE` sets. A plugin's own objects, the first ones, are compared by identity alone."""
    modes = map(torch._C._get_function_stack_at, range(torch._C._len_torch_function_stack()))
    values = (
        torch.is_inference_mode_enabled(),
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_deterministic_debug_mode(),
        torch.get_num_threads(),
        torch._C._get_float32_matmul_precision(),
        torch.is_autocast_enabled("cpu"),
        torch._C._len_torch_dispatch_stack(),
        torch._C._functorch.get_dynamic_layer_stack_depth(),
        (
            torch._C._get_math_sdp_enabled(),
            torch._C._get_flash_sdp_enabled(),
            torch._C._get_mem_efficient_sdp_enabled(),
            torch._C._get_cudnn_sdp_enabled(),
        ),
    )
    return (*map(_handler_of, _SIGNALS), *modes), values


def _put_back(objects: tuple[Any, ...], values: tuple[Any, ...]) -> list[str]:
    """Put back what differs; returns the names."""
    changed: list[str] = []
    now, _ = _settings()
    first = len(_SIGNALS)
    if not all(map(is_, objects[:first], now)) and (
        threading.current_thread() is threading.main_thread()  # no other can set one, or runs one
    ):
        _set_handlers(objects[:first])
        changed.append("signal handlers")
    if len(now) != len(objects) or not all(map(is_, now[first:], objects[first:])):
        _set_function_modes(objects[first:])
        changed.append("default device or torch function mode")
    _, after = _settings()
    if after != values:
        for (name, write), old, new in zip(_WRITE.items(), values, after, strict=True):
            if old != new:
                write(old)
                changed.append(name)
    return changed


def _set_handlers(handlers: tuple[Any, ...]) -> None:
    for number, old in zip(_SIGNALS, handlers, strict=True):
        if (
            old is None or _handler_of(number) is old
        ):  # None: set by other code, which Python cannot set again
            continue
        if old == signal.SIG_DFL and number.name in _TIMERS:  # first, as it would then end the process
            signal.setitimer(getattr(signal, _TIMERS[number.name]), 0.0)
        signal.signal(number, old)


def _set_function_modes(modes: tuple[Any, ...]) -> None:
    for _ in range(torch._C._len_torch_function_stack()):
        torch._C._pop_torch_function_stack()
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)
    is_default = bool(modes) and isinstance(
        modes[0], DeviceContext
    )  # `torch.set_default_device` puts its mode first
    torch._GLOBAL_DEVICE_CONTEXT.device_context = modes[0] if is_default else None
    device_modes.CURRENT_DEVICE = modes[0].device if is_default else None  # what compiled code is guarded by


def _drop_dispatch_modes(count: int) -> None:
    while torch._C._len_torch_dispatch_stack() > count:
        torch._C._pop_torch_dispatch_stack(None)


def _set_attention_kernels(enabled: tuple[bool, ...]) -> None:
    is_math, is_flash, is_efficient, is_cudnn = enabled
    torch._C._set_sdp_use_math(is_math)
    torch._C._set_sdp_use_flash(is_flash)
    torch._C._set_sdp_use_mem_efficient(is_efficient)
    torch._C._set_sdp_use_cudnn(is_cudnn)
