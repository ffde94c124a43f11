"""Code compiled by numba that the noise, the logits and the CPU's layers share, and the cache of all of it."""

import specdec_kernels.cpu.compiled.target  # noqa: F401  # what numba compiles for is set before it first compiles
