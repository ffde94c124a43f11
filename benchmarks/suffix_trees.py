"""Our suffix trees beside those of arctic-inference (`make arctic`): equal drafts, and the processor time of a step.

    python benchmarks/suffix_trees.py [--steps 10000] [--json FILE]

Both get the same calls: requests whose texts copy from earlier ones begin, grow by what a step emits, ask for a chain or a tree
of up to 24 tokens, and end as responses, of which the oldest leave. Drafts are equal but for ties: where they differ, both must
be drafts of the specification, which lets ties be broken arbitrarily (`specdec_plugin_suffix.reference`; `test_walk.py` holds
every draft against it). Times are of the thread, so that other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

from common.provenance import provenance
from common.results import RESULTS

from specdec_plugin_suffix import reference
from specdec_plugin_suffix.arctic import ArcticCache
from specdec_plugin_suffix.cache import SuffixCache, SuffixDraft
from specdec_plugin_suffix.request import Rules
from specdec_plugin_suffix.suffix_tree import TreeCache

DEPTH, MOST_NODES, MOST_RESPONSES, LENGTH, VOCABULARY = 24, 24, 200, 300, 5000
RULES = (Rules(1.0, 0.1, False), Rules(4.0, 0.05, True))


class Pair:
    """Both caches, which get the same calls, and the times that these took."""

    def __init__(self) -> None:
        self._caches: tuple[SuffixCache, SuffixCache] = (TreeCache(DEPTH), ArcticCache(DEPTH))
        self.seconds: dict[str, tuple[list[float], list[float]]] = {}

    def call(self, method: str, *given: Any, **options: Any) -> list[Any]:
        """Call a method of both, and return what they answer."""
        answers, times = [], self.seconds.setdefault(method, ([], []))
        for cache, taken in zip(self._caches, times, strict=True):
            began = thread_time()
            answers.append(getattr(cache, method)(*given, **options))
            taken.append(thread_time() - began)
        return answers


def written(generator: random.Random, earlier: list[list[int]]) -> list[int]:
    """Return a text that is made of pieces of earlier ones, of its own and of new tokens."""
    text: list[int] = []
    while len(text) < LENGTH:
        source = generator.choice([*earlier[-8:], text])
        start = generator.randrange(len(source)) if source and generator.random() < 0.8 else None
        size = generator.randint(1, 40)
        text += (
            [generator.randrange(VOCABULARY) for _ in range(size // 4 + 1)]
            if start is None
            else source[start : start + size]
        )
    return text[:LENGTH]


def is_tie(text: list[int], responses: list[list[int]], rules: Rules, found: list[SuffixDraft]) -> bool:
    """Return whether the specification allows all of the drafts after a text: chains, or trees that promise the most."""
    limits = reference.Rules(MOST_NODES, DEPTH, rules.max_spec_factor, rules.min_token_prob)
    if rules.is_tree:
        most = sum(reference.tree_probs(text, responses, limits))
        return all(abs(sum(draft.probs) - most) <= 1e-4 for draft in found)
    allowed = reference.drafts(text, responses, limits)
    return all(tuple(draft.token_ids) in allowed for draft in found)


def run(num_steps: int) -> tuple[Pair, Counter[str]]:
    """Take steps; return the pair, and the numbers of equal drafts, of ties, of others and of drafted tokens."""
    generator, pair, texts = random.Random(0), Pair(), list[list[int]]()
    counts, step = Counter(equal=0, ties=0, other=0), 0
    while step < num_steps:
        name, text, rules = f"request {len(texts)}", written(generator, texts), RULES[len(texts) % 2]
        pair.call("start_request", name)
        place = 0
        while place < len(text) and step < num_steps:
            emitted = text[place : place + generator.randint(1, 6)]
            pair.call("append", name, emitted)
            found = ours, theirs = pair.call("speculate", name, MOST_NODES, rules)
            place, step = place + len(emitted), step + 1
            counts["tokens"] += len(ours.token_ids)
            if (ours.token_ids, ours.parents) == (theirs.token_ids, theirs.parents):
                counts["equal"] += 1
            else:
                are_ties = is_tie(text[:place], texts[-MOST_RESPONSES:], rules, found)
                counts["ties" if are_ties else "other"] += 1
        pair.call("stop_request", name)
        pair.call("append_response", text, is_first=True, is_last=True)
        texts.append(text)
        if len(texts) > MOST_RESPONSES:
            pair.call("evict_response")
    return pair, counts


def main() -> int:
    """Take the steps, print and write the result."""
    parser = argparse.ArgumentParser(description="our suffix trees beside those of arctic-inference")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--json", type=Path, help="where to write the result (default: benchmarks/results)")
    arguments = parser.parse_args()
    began = provenance()
    run(100)  # compiles
    pair, counts = run(arguments.steps)
    print(", ".join(f"{name}: {count}" for name, count in counts.items()))
    rows = []
    for what, times in pair.seconds.items():
        own, other = (float(f"{1e6 * median(taken):.4g}") for taken in times)
        rows.append([what, len(times[0]), own, other])
        print(f"{what}: {own:g} and {other:g} us, {len(times[0])} calls")
    content = {
        "environment": began | {"versions": {name: version(name) for name in ("arctic-inference", "numba")}},
        "settings": {
            "steps": arguments.steps, "depth": DEPTH, "max_nodes": MOST_NODES, "responses": MOST_RESPONSES, "length": LENGTH,
        },
        "drafts": counts,
        "columns": ["call", "calls", "own_us", "arctic_us"],
        "rows": rows,
    }  # fmt: skip
    file = arguments.json or RESULTS / "suffix_trees.json"
    file.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    return int(counts["other"] > 0)


if __name__ == "__main__":
    sys.exit(main())
