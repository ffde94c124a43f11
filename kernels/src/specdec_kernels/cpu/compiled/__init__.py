"""Code compiled by numba that the noise, the logits and the CPU's layers share, and the cache of all of it."""
