"""What a proposer may raise, change in the process or write to; each in `propose` unless its name says otherwise."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from speccheck.hostile.returned import VOCAB, Kind, Liar, later
from specdec.interfaces import Draft, ProposeBatch


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit("cannot be printed")

    __repr__ = __str__


class NoTrace(BaseException):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise SystemExit("no trace")

    @property
    def __notes__(self) -> Any:
        raise SystemExit("no notes")


class Unnamed(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit("no name")


class OfNoName(BaseException, metaclass=Unnamed):
    pass


class Interrupt(BaseException):
    __class__ = KeyboardInterrupt  # type: ignore[assignment]


class Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise SystemExit("mode")


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise SystemExit("dispatch")


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a function that raises."""

    def run(*_: object) -> Any:
        raise error

    return run


def forever(*_: object) -> Any:
    return forever()


RAISED: dict[str, Callable[..., Any]] = {
    "SystemExit": raising(SystemExit(3)),
    "GeneratorExit": raising(GeneratorExit()),
    "CancelledError": raising(asyncio.CancelledError()),
    "BaseExceptionGroup": raising(BaseExceptionGroup("many", [SystemExit(1), KeyboardInterrupt()])),
    "a BaseException": raising(BaseException("plain")),
    "StopIteration": raising(StopIteration(3)),
    "MemoryError": raising(MemoryError()),
    "RecursionError": forever,
    "an unprintable error": raising(Unprintable()),
    "an error without trace": raising(NoTrace()),
    "an error without name": raising(OfNoName()),
    "an error that pretends to be Ctrl-C": raising(Interrupt()),
    "sys.exit": lambda *_: sys.exit("bye"),
    "a signal": lambda *_: _raise_signal(),
}
"""What is raised."""


def _raise_signal() -> None:
    signal.signal(signal.SIGUSR1, raising(SystemExit("signal")))
    signal.raise_signal(signal.SIGUSR1)


def _alarm() -> None:
    """Raise in the midst of the engine's next step; only the main thread can."""
    signal.signal(signal.SIGALRM, raising(SystemExit("alarm")))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)


def _entered(context: Any) -> Any:
    context.__enter__()
    return context


def _traced(frame: Any, event: str, argument: object) -> None:
    """Raise in the midst of the engine's next step."""
    if "/specdec/runner/" in frame.f_code.co_filename:
        raise SystemExit("trace")


SETTINGS: dict[str, Callable[..., Any]] = {
    "default device meta": lambda *_: torch.set_default_device("meta"),
    "a device left entered": lambda *_: torch.device("meta").__enter__(),
    "default dtype": lambda *_: torch.set_default_dtype(torch.float64),
    "deterministic algorithms": lambda *_: torch.use_deterministic_algorithms(True),
    "number of threads": lambda *_: torch.set_num_threads(3),
    "a low recursion limit": lambda *_: sys.setrecursionlimit(len(inspect.stack(0)) + 4),
    "attention without kernels": lambda *_: KEPT.append(_entered(sdpa_kernel(SDPBackend.CUDNN_ATTENTION))),
    "a gradient transform left on": lambda *_: torch._C._functorch._grad_increment_nesting(),
    "a trace function that raises": lambda *_: sys.settrace(_traced),
    "a profile function that raises": lambda *_: sys.setprofile(_traced),
    "numpy errors raised": lambda *_: np.seterr(all="raise"),
    "autocast left on": lambda *_: torch.autocast("cpu", dtype=torch.bfloat16).__enter__(),
    "grad mode": lambda *_: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "a function mode left on": lambda *_: Mode().__enter__(),
    "a dispatch mode left on": lambda *_: Dispatch().__enter__(),
    "a signal handler that raises": lambda *_: _alarm(),
}
"""Settings of the process that are changed."""

EVERYWHERE = frozenset(
    {
        "SystemExit", "BaseExceptionGroup", "an unprintable error", "a signal", "default device meta", "default dtype",
        "a function mode left on", "a signal handler that raises",
    }
)  # fmt: skip
"""Kinds that are tried in every place, and not in `propose` alone."""

KEPT: list[Any] = []
"""What a proposer keeps of a batch beyond its call."""


def _bases(array: Any) -> list[Any]:
    """Return an array and all that it is a view of."""
    found = []
    while isinstance(array, np.ndarray):
        found.append(array)
        array = array.base
    return found


def _zero(array: np.ndarray) -> None:
    torch.from_numpy(array).zero_()


def _arrays(batch: ProposeBatch) -> list[np.ndarray]:
    return [batch.new_token_ids, *(batch.token_ids(row) for row in range(batch.batch_size))]


def _zero_all(batch: ProposeBatch) -> None:
    for array in _arrays(batch):
        if array.size:
            _zero(array)


def _writable(batch: ProposeBatch) -> None:
    for array in _arrays(batch):
        for base in reversed(_bases(array)):
            base.flags.writeable = True
            base[:] = 1


def _dlpack(batch: ProposeBatch) -> None:
    for array in _arrays(batch):
        base = _bases(array)[-1]
        base.flags.writeable = True
        torch.from_dlpack(base).zero_()


def _unwritable(batch: ProposeBatch) -> None:
    """Set the flags of everything reachable so that the engine could not append."""
    for array in _arrays(batch):
        for base in _bases(array):
            base.flags.writeable = False


def _native(batch: ProposeBatch) -> None:
    for array in _arrays(batch):
        if array.size:
            ctypes.memset(array.ctypes.data, 0, array.nbytes)


def _next_step(batch: ProposeBatch) -> None:
    for array in KEPT:
        _zero(array)
    KEPT[:] = [array for array in _arrays(batch) if array.size]


def _by_thread(batch: ProposeBatch) -> None:
    arrays = [array for array in _arrays(batch) if array.size]
    later(lambda: [_zero(array) for array in arrays])


def _params_lists(batch: ProposeBatch) -> None:
    for params in batch.sampling_params:
        for value in vars(params).values():
            if isinstance(value, list):
                value[:] = [1]
            elif isinstance(value, dict):
                value.clear()
                value[1] = 100.0


def _params_fields(batch: ProposeBatch) -> None:
    for params in batch.sampling_params:
        vars(params).update(temperature=9.0, max_tokens=1, seed=4, repetition_penalty=1.0, min_tokens=0)
        object.__setattr__(params, "stop_token_ids", list(range(VOCAB)))


def _batch_lists(batch: ProposeBatch) -> None:
    for value in vars(batch).values():
        if isinstance(value, list):
            value[:] = [Liar(10**9)] * 40


def _batch_fields(batch: ProposeBatch) -> None:
    for name in list(vars(batch)):
        object.__setattr__(batch, name, object())


def _reachable(batch: ProposeBatch) -> None:
    """Empty every container that attributes and closures of the batch lead to."""
    seen: set[int] = set()
    queue: list[Any] = [vars(batch), batch.draws, batch.token_ids_of, batch.allowed_after]
    while queue:
        value = queue.pop()
        if id(value) in seen or type(value).__module__ in ("torch", "builtins.type"):
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            queue += value.values()
        elif isinstance(value, list | tuple):
            queue += value
        if hasattr(value, "__self__"):
            queue.append(value.__self__)
        for cell in getattr(value, "__closure__", None) or ():
            queue.append(cell.cell_contents)
        if type(value).__module__.startswith("specdec."):
            queue.append(getattr(value, "__dict__", {}))
            queue += [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
        if isinstance(value, list):
            value.clear()
        elif isinstance(value, np.ndarray) and value.flags.owndata and value.flags.writeable:
            value[:] = 0


def _states(write: Callable[[torch.Tensor], object]) -> Callable[[ProposeBatch], None]:
    def run(batch: ProposeBatch) -> None:
        for states in (batch.hidden_states, *batch.aux_hidden_states, batch.has_hidden):
            if states is not None:
                write(states)

    return run


def _late_states(batch: ProposeBatch) -> None:
    for states in KEPT:
        states.fill_(float("nan"))
    KEPT[:] = [states for states in (batch.hidden_states, *batch.aux_hidden_states) if states is not None]


WRITES: dict[str, Callable[[ProposeBatch], None]] = {
    "zeros by from_numpy": _zero_all,
    "writable bases": _writable,
    "unwritable bases": _unwritable,
    "zeros by dlpack": lambda batch: _dlpack(batch),
    "zeros by ctypes": _native,
    "zeros one step later": _next_step,
    "zeros by a thread": _by_thread,
    "lists of sampling_params": _params_lists,
    "fields of sampling_params": _params_fields,
    "lists of the batch": _batch_lists,
    "fields of the batch": _batch_fields,
    "everything reachable": _reachable,
}
"""Writes to what a batch hands over."""

STATES: dict[str, Callable[[ProposeBatch], None]] = {
    "hidden states zeroed": _states(lambda states: states.zero_()),
    "hidden states resized": _states(lambda states: states.resize_(7, 3)),
    "hidden states replaced": _states(lambda states: states.set_(torch.ones(()).to(states.dtype))),
    "hidden states a step later": _late_states,
}
"""The same for proposers that read hidden states."""


def _quiet(function: Callable[..., object], *arguments: object) -> None:
    with suppress(BaseException):
        function(*arguments)


class NoLength:
    """Iterates and raises in the midst."""

    def __iter__(self) -> Any:
        yield from (13, 14)
        raise SystemExit("no more")


def _asked(*paths: Any) -> Callable[[ProposeBatch], None]:
    def run(batch: ProposeBatch) -> None:
        for row in range(-1, batch.batch_size + 1):
            for path in paths:
                _quiet(batch.allowed, row, path() if callable(path) else path)

    return run


def _asked_by_thread(batch: ProposeBatch) -> None:
    later(lambda: [batch.allowed(row, [13, 14, 15]) for row in range(batch.batch_size)], 0.2)
    time.sleep(0.002)


MISUSE: dict[str, Callable[[ProposeBatch], None]] = {
    "allowed after no path": _asked(5, None, object()),
    "allowed after text": _asked([13, 14, "x"], "ab", [13, 1.5], [13, None, 14], [13, 2**70]),
    "allowed after an iterator": _asked(lambda: iter([13, 14]), lambda: (t for t in (13, 14)), NoLength),
    "allowed after liars": _asked([Liar(13), Liar(10**9)], [13, -5, 14], [13, 10**6]),
    "allowed asked by a thread": _asked_by_thread,
    "everything reachable of a grammar": _reachable,
}
"""Misuses of `ProposeBatch.allowed`; for a request that follows a grammar."""


def returning(act: Callable[[ProposeBatch], None]) -> Kind:
    """Return a kind that does something and then returns its draft."""

    def run(plugin: Any, draft: Draft, batch: ProposeBatch) -> Draft:
        act(batch)
        return draft

    return run
