"""Tensor parallelism: one process per rank. Part `tensor_parallel` of specdec.

Rank 0 is the caller's process. It starts the others and runs the engine: it schedules, drafts, samples and commits. Before it
runs something on a model whose weights are split, it tells the other ranks, which run the same on their part. Decisions are
thus made by one process only, and ranks cannot diverge by a clock or by local state.
"""

from specdec_runtime.parallel.ranks import Ranks

__all__ = ["Ranks"]
