"""Tensor parallelism: one process per rank, under `torchrun`.

Rank 0 runs the engine: it schedules, drafts, samples and commits. Whatever it runs on a model whose weights are split, it tells
the others first, who run the same on their part. So nothing that depends on a clock or on one process can differ between ranks.
"""
