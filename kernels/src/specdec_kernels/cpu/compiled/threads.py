"""Checks whether compiled loops run on this machine, and sets their number of threads."""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import distributions

import numba
import numpy as np
import numpy.typing as npt
import torch
from numba import prange
from numba.core import config, entrypoints

from specdec_kernels.cpu.compiled.jit import njit

logger = logging.getLogger("specdec")


@njit(parallel=True, nogil=True, cache=True)
def _count(out: npt.NDArray[np.int64]) -> None:
    for i in prange(out.shape[0]):
        out[i] = i


@cache
def is_available() -> bool:
    """Return whether numba compiles here and can share the processor with torch; tested once with a tiny parallel loop.

    numba must use OpenMP, as torch does; with a thread pool of its own the two wait for each other. Other loops are compiled
    on their first call; if that fails, they raise numba's exception.
    """
    try:
        load_extensions()
        if config.THREADING_LAYER == "default":  # type: ignore[attr-defined]  # made from the environment
            config.THREADING_LAYER = "omp"  # type: ignore[attr-defined]  # ditto
        num_threads = torch.get_num_threads()
        _count(np.zeros(2, np.int64))
        # The first call has OpenMP use every processor, and with it torch, whatever number it was given.
        torch.set_num_threads(num_threads)
        use_threads()
    except Exception as error:  # a platform's threading may raise anything; torch's own attention still works
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        logger.warning(
            "compiled loops do not run here (%s: %s); torch's operations are used, two to four times slower at small batches",
            type(error).__name__, reason,
        )  # fmt: skip
        return False
    return True


def load_extensions() -> None:
    """Load the extensions of numba, which it loads before it first compiles.

    Its own scan ends at the first installed package whose metadata cannot be read; such a package costs only itself here.
    """
    try:
        entrypoints.init_all()  # type: ignore[no-untyped-call]
        return
    except Exception:  # numba does not scan again
        found = distributions()
    for distribution in found:
        try:
            for entry in distribution.entry_points.select(group="numba_extensions", name="init"):
                entry.load()()
        except Exception as error:  # from files, or modules, that anybody may have written
            name = getattr(distribution, "_path", distribution)  # no other attribute says where it is
            logger.warning(
                "extensions of numba in %s are left out: %s: %s", name, type(error).__name__, error
            )


def use_threads() -> None:
    """Use as many threads as torch does."""
    most: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # made from the environment
    numba.set_num_threads(min(torch.get_num_threads(), most))
