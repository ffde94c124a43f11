"""The cost of a step does not grow with the context."""

import time

import numpy as np

BATCH_SIZE = 32
NUM_STEPS = 60


def test_a_step_at_32_000_tokens_costs_about_what_it_costs_at_1_000(make_feed, delivery):
    rng = np.random.default_rng(0)
    best = {}
    feeds = {}
    for context in (1_000, 32_000):
        feeds[context] = make_feed(prompt_lookup_min=2, prompt_lookup_max=5).proposer
        feeds[context].load(None)
        prompts = [rng.integers(0, 300, context).astype(np.int32) for _ in range(BATCH_SIZE)]
        names = [f"request {row}" for row in range(BATCH_SIZE)]
        index = feeds[context]._index
        index.step(
            names, [0] * BATCH_SIZE, [context] * BATCH_SIZE, np.concatenate(prompts), 0, [context] * 32
        )
        best[context] = float("inf")
    for step in range(NUM_STEPS):  # interleaved, so that whatever else the machine does hits both
        for context, proposer in feeds.items():
            new = rng.integers(0, 300, 2 * BATCH_SIZE).astype(np.int32)
            starts = [context + 2 * step] * BATCH_SIZE
            begin = time.perf_counter()
            proposer._index.step(names, starts, [2] * BATCH_SIZE, new, [5] * BATCH_SIZE, starts)
            best[context] = min(best[context], time.perf_counter() - begin)
    assert best[32_000] <= 10e-6 * BATCH_SIZE
    assert best[32_000] <= 2.5 * best[1_000]  # a rescan costs 32 times as much
