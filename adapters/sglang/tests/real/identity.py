"""The real engine: greedy texts with every method are those of SGLang alone, token for token.

    PYTHON_OF_SGLANG adapters/sglang/tests/real/identity.py [--kind chains|trees|heads] [--methods JSON ...]

One process asks SGLang without speculation; a second one asks it with our proposers, one after the other in one engine, each
for cold prompts and for cached ones, then for 16 requests at once of which it aborts every fourth. Exits with 1 if a text
differs, a request is not forgotten, or the engine ends.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib.metadata import version
from typing import Any

from engine import Engine, prompts
from tried import HOSTILE, Tried, add_shared, in_two_processes, keep, name_of, of_readme, shown, target_of


def chains() -> list[dict[str, Any]]:
    """Return what the zoo's target is tried with."""
    methods: list[dict[str, Any]] = [{"method": "ngram"}, {"method": "suffix"}, of_readme()]
    methods.append({"method": "composite", "proposers": [{"method": "suffix"}, {"method": "ngram"}]})
    methods = [
        method | {"late_drafts": is_late} for method in [*methods, HOSTILE] for is_late in (False, True)
    ]
    methods += [{"method": m} for m in ("ngram_gpu", "recycling")]
    return [*methods, {"method": "draft_model", "model": "zoo"}]


HEADS: list[dict[str, Any]] = [{"method": m, "model": "zoo"} for m in ("eagle3", "eagle", "mtp")]


def is_held(engine: Engine, count: int, expected: list[list[int]]) -> bool:
    """Return whether concurrent requests, some of them aborted, have their texts, and nothing is held of them."""
    wrong = []
    for i, (got, reason) in enumerate(engine.stream(prompts(count), 16)):
        wanted = expected[i % count]
        # An aborted request keeps all tokens of its last step, which may be more than it asked for.
        if got[: len(wanted)] != wanted[: len(got)] or (reason != "abort" and len(got) != len(wanted)):
            wrong.append(f"request {i}, {reason}: {got} for {wanted}")
    counters = engine.counters()
    print(
        f"    16 at once: {len(wrong)} differ, {counters['requests_held']} held",
        *wrong,
        sep="\n    ",
        flush=True,
    )
    return not wrong and counters["requests_held"] == 0 and counters["adapter_failures"] == 0


KEYS: dict[str, dict[str, Any]] = {
    "chains": {},
    "trees": {"speculative_eagle_topk": 4},
    "heads": {"disable_radix_cache": True},  # SGLang has no hidden states of cached prefixes
}
TREES: list[dict[str, Any]] = [{"method": "recycling"}, {"method": "suffix", "use_tree_spec": True}]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add_shared(parser, num_prompts=6)
    parser.add_argument("--kind", choices=KEYS, default="chains")
    return parser.parse_args()


def ids(engine: Engine, count: int) -> tuple[list[list[int]], int]:
    """Return the tokens of each prompt, and the number of verifications."""
    outputs = engine.ask(prompts(count))
    verified = sum(output["meta_info"].get("spec_verify_ct") or 0 for output in outputs)
    return [list(output["output_ids"]) for output in outputs], verified


def compare(arguments: argparse.Namespace, keys: dict[str, Any]) -> int:
    """Try every method; returns how many texts differ."""
    expected = json.loads(arguments.texts.read_text())
    methods = arguments.methods or {"chains": chains(), "trees": TREES, "heads": HEADS}[arguments.kind]
    keys |= KEYS[arguments.kind]
    engine = Engine(arguments.model, methods[0], arguments.num_speculative_tokens, **keys)
    num_wrong, kept = 0, []
    for method in methods:
        engine.reopen(method)
        started = time.perf_counter()
        (cold, first), (cached, second) = (ids(engine, arguments.num_prompts) for _ in range(2))
        got = cold + cached
        same = sum(a == b for a, b in zip(got, expected * 2, strict=True))
        num_wrong += len(got) - same
        seconds = time.perf_counter() - started
        length = (sum(map(len, got)) - len(got)) / (first + second)
        print(
            f"{json.dumps(method)}: {same} of {len(got)} texts equal, {length:.2f} tokens a step, {seconds:.1f} s"
        )
        counters = engine.counters()
        print("   ", shown(counters), flush=True)
        numbers = (counters[f"num_{name}"] for name in ("drafts", "draft_tokens", "accepted_tokens"))
        asked = "late" if method.get("late_drafts") else "in_time"
        shape = "tree" if arguments.kind == "trees" else "chain"
        row = ("SGLang", target_of(arguments.model), name_of(method), asked, shape, "SGLang's")
        kept.append(Tried(*row, version("sglang"), "0.0", same, len(got), *numbers))
        num_wrong += not is_held(engine, arguments.num_prompts, expected)
    engine.end()
    if arguments.keep is not None:
        keep(arguments.keep, kept)
    return num_wrong


def main() -> int:
    arguments = read_arguments()
    keys: dict[str, Any] = {}
    if arguments.tensor_parallel > 1:
        keys["tp_size"] = arguments.tensor_parallel
        os.environ["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(map(str, range(arguments.tensor_parallel)))
    if arguments.model is None:
        import specdec_zoo

        arguments.model = str(specdec_zoo.path("target"))
    if arguments.role == "reference":
        engine = Engine(arguments.model, None, **keys)
        arguments.texts.write_text(json.dumps(ids(engine, arguments.num_prompts)[0]))
        engine.end()
        return 0
    if arguments.role == "adapter":
        return 1 if compare(arguments, keys) else 0
    return in_two_processes({})


if __name__ == "__main__":
    sys.exit(main())
