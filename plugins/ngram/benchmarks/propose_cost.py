"""Measure what a step of `ngram` costs per request as the context grows; prints JSON.

    python plugins/ngram/benchmarks/propose_cost.py

Every step commits one to four tokens per request and drafts five; taking in the prompt is measured apart.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Iterator
from typing import cast

import numpy as np
import torch

from specdec.interfaces import Draws, FinishReason, ProposeBatch, TargetHandle, TargetInfo
from specdec.sampling_params import SamplingParams
from specdec_plugin_ngram import NgramConfig, NgramProposer
from specdec_plugin_ngram.kernels import Int32s

NUM_STEPS = 40
MOST_COMMITTED = 4
NUM_NODES = 5


def make_text(rng: np.random.Generator, size: int) -> Int32s:
    """Make text that repeats itself: half of it is copied, in spans, from what came before."""
    text = np.minimum(rng.zipf(1.2, size), 32_000).astype(np.int32)
    position = 64
    while position + 32 < size:
        length = int(rng.integers(4, 32))
        source = int(rng.integers(0, position - length)) if position > length else 0
        text[position : position + length] = text[source : source + length]
        position += 2 * length
    return text


def make_batches(
    texts: list[Int32s], num_prompt_tokens: int, rng: np.random.Generator
) -> Iterator[ProposeBatch]:
    """Yield the prompts as one batch, then `NUM_STEPS` batches of decoding."""
    size = len(texts)
    held = [0] * size
    for step in range(NUM_STEPS + 1):
        counts = (
            [num_prompt_tokens] * size if step == 0 else rng.integers(1, MOST_COMMITTED + 1, size).tolist()
        )
        pieces = [text[start : start + count] for text, start, count in zip(texts, held, counts, strict=True)]
        starts, held = held, [start + count for start, count in zip(held, counts, strict=True)]
        yield ProposeBatch(
            request_ids=tuple(f"request-{row}" for row in range(size)),
            max_nodes=[NUM_NODES] * size,
            num_tokens=held,
            num_prompt_tokens=[num_prompt_tokens] * size,
            starts=starts,
            counts=counts,
            new_token_ids=np.concatenate(pieces),
            last_num_drafted=[0] * size,
            last_num_accepted=[0] * size,
            sampling_params=(SamplingParams(),) * size,
            draws=cast(Draws, None),
            token_ids_of=lambda row: np.empty(0, dtype=np.int32),
        )


def make_proposer(shortest: int, longest: int, match: str) -> NgramProposer:
    """Make a compiled proposer."""
    info = TargetInfo(
        vocab_size=32_001,
        hidden_size=1,
        num_layers=1,
        max_model_len=131_072,
        dtype=torch.float32,
        device=torch.device("cpu"),
        eos_token_ids=(),
        tokenizer_fingerprint=None,
    )
    config = NgramConfig.model_validate(
        {
            "num_speculative_tokens": NUM_NODES,
            "prompt_lookup_min": shortest,
            "prompt_lookup_max": longest,
            "match": match,
        }
    )
    proposer = NgramProposer(config, info)
    proposer.load(cast(TargetHandle, None))
    return proposer


def measure(proposer: NgramProposer, context: int, batch_size: int, seed: int) -> tuple[float, list[float]]:
    """Return the seconds for taking in all prompts, and those of each step after."""
    rng = np.random.default_rng(seed)
    texts = [make_text(rng, context + MOST_COMMITTED * NUM_STEPS) for _ in range(batch_size)]
    times = []
    request_ids: tuple[str, ...] = ()
    for batch in list(make_batches(texts, context, rng)):
        begin = time.perf_counter()
        proposer.propose(batch)
        times.append(time.perf_counter() - begin)
        request_ids = batch.request_ids
    proposer.finish(request_ids, FinishReason.LENGTH)
    return times[0], times[1:]


def main() -> None:
    """Run all contexts interleaved and print medians and minima."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contexts", type=int, nargs="+", default=[1_000, 4_000, 32_000])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--min", type=int, default=5)
    parser.add_argument("--max", type=int, default=5)
    parser.add_argument("--match", default="recent")
    args = parser.parse_args()
    proposer = make_proposer(args.min, args.max, args.match)
    prompts: dict[int, list[float]] = {context: [] for context in args.contexts}
    steps: dict[int, list[float]] = {context: [] for context in args.contexts}
    for seed in range(args.rounds):
        for context in args.contexts:
            prompt, times = measure(proposer, context, args.batch_size, seed)
            prompts[context].append(prompt)
            steps[context] += times
    rows = [
        {
            "context": context,
            "us_per_request_median": round(1e6 * statistics.median(steps[context]) / args.batch_size, 3),
            "us_per_request_min": round(1e6 * min(steps[context]) / args.batch_size, 3),
            "prompt_ms_per_request": round(1e3 * statistics.median(prompts[context]) / args.batch_size, 3),
        }
        for context in args.contexts
    ]
    environment = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    print(json.dumps({"options": vars(args), "rows": rows, "environment": environment}, indent=2))


if __name__ == "__main__":
    main()
