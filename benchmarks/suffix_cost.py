"""Cost of `suffix` compared with the bare suffix trees: time per request and step, without building the draft.

    python benchmarks/suffix_cost.py [--quick]

Three variants alternate over the same steps and texts: ours; only the library's calls on the same trees, with prepared
inputs; and the library as vLLM calls it, which adds responses to the global tree while they grow. Ours adds them when
requests finish; "learning" is the cost of that per request and step. Times are processor times, so other load on the machine
has little effect. Gate: ours and the library on the same trees draft the same tokens in every step. The command exits with 1
if they do not, or if the ratio to the same trees exceeds the limit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from arctic_inference.suffix_decoding import SuffixDecodingCache
from common.provenance import load_average, provenance
from common.results import RESULTS, write
from common.stats import PairedRatio, paired_ratio

from specdec.interfaces import Draws, ProposeBatch
from specdec.sampling_params import SamplingParams
from specdec_plugin_suffix.config import SuffixConfig
from specdec_plugin_suffix.drafts import chains, trees
from specdec_plugin_suffix.trees import SuffixTrees

LIMIT = 1.3
MOST_COMMITTED = 4
NUM_FINISHED = 32
FINISHED_LEN = 500
VOCAB_SIZE = 32_000
_COLUMNS = (
    "context",
    "ours us",
    "same trees us",
    "as vLLM us",
    "ratio to same trees",
    "ratio to vLLM's",
    "learning us",
    "draft us",
    "tokens",
)

Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Step:
    """The input of one step, the same for all variants."""

    batch: ProposeBatch
    news: list[list[int]]
    contexts: list[list[int]]
    """The last tokens of every row, up to the tree depth."""


@dataclass
class Times:
    """Seconds per step at one context length: the median of each round."""

    ours: list[float] = field(default_factory=list)
    same_trees: list[float] = field(default_factory=list)
    as_vllm: list[float] = field(default_factory=list)
    learning: list[float] = field(default_factory=list)
    """Cost of learning finished responses, divided by the number of steps that generated them."""
    build: list[float] = field(default_factory=list)
    num_drafted: list[float] = field(default_factory=list)
    """Drafted tokens per row, by step."""
    num_differences: int = 0


def make_text(rng: np.random.Generator, size: int) -> Int32s:
    """Make repetitive text: half of it consists of spans copied from earlier positions."""
    text = np.minimum(rng.zipf(1.2, size), VOCAB_SIZE).astype(np.int32)
    position = 64
    while position + 32 < size:
        length = int(rng.integers(4, 32))
        source = int(rng.integers(0, position - length))
        text[position : position + length] = text[source : source + length]
        position += 2 * length
    return text


def make_steps(
    texts: Sequence[Int32s], context: int, num_steps: int, depth: int, rng: np.random.Generator
) -> Iterator[Step]:
    """Yield one step with the prompts, then steps that commit one to four tokens per request."""
    size = len(texts)
    held = [0] * size
    for step in range(num_steps + 1):
        counts = [context] * size if step == 0 else rng.integers(1, MOST_COMMITTED + 1, size).tolist()
        starts, held = held, [start + count for start, count in zip(held, counts, strict=True)]
        pieces = [text[start:end] for text, start, end in zip(texts, starts, held, strict=True)]
        new_token_ids = np.concatenate(pieces)
        new_token_ids.flags.writeable = False
        batch = ProposeBatch(
            request_ids=tuple(f"request-{row}" for row in range(size)),
            max_nodes=[depth] * size,
            num_tokens=held,
            num_prompt_tokens=[context] * size,
            starts=starts,
            counts=counts,
            new_token_ids=new_token_ids,
            last_num_drafted=[0] * size,
            last_num_accepted=[0] * size,
            sampling_params=(SamplingParams(),) * size,
            draws=cast(Draws, None),
            token_ids_of=lambda row: texts[row],
        )
        contexts = [text[max(0, end - depth) : end].tolist() for text, end in zip(texts, held, strict=True)]
        yield Step(batch, [piece.tolist() for piece in pieces], contexts)


def bare(depth: int, finished: Sequence[Int32s], step: Step, *, is_taught: bool) -> SuffixDecodingCache:
    """Return the library's cache with finished responses and prompts; `is_taught` also adds running requests to it."""
    cache = SuffixDecodingCache(depth, -1)
    for number, response in enumerate(finished):
        cache.start_request(number, [])
        cache.add_active_response(number, response)
        cache.stop_request(number)
    for request_id, prompt in zip(step.batch.request_ids, step.news, strict=True):
        cache.start_request(request_id, prompt)
        if not is_taught:
            cache.evict_cached_response(request_id)
    return cache


def run_round(context: int, arguments: argparse.Namespace, seed: int, times: Times) -> None:
    """Run all variants over the same steps and record the median time of each."""
    rng = np.random.default_rng(seed)
    depth, is_tree = arguments.depth, arguments.tree
    texts = [make_text(rng, context + MOST_COMMITTED * arguments.steps) for _ in range(arguments.batch_size)]
    finished = [text[context // 2 : context // 2 + FINISHED_LEN].copy() for text in texts[:NUM_FINISHED]]
    first, *steps = make_steps(texts, context, arguments.steps, depth, rng)

    config = SuffixConfig.model_validate(
        {
            "num_speculative_tokens": depth,
            "suffix_decoding_max_tree_depth": depth,
            "use_tree_spec": is_tree,
            "suffix_decoding_time_budget_ms": 1e6,  # prompts arrive in one step; the clock is still read
        }
    )
    ours = SuffixTrees(config)
    for response in finished:
        ours.memory.add(array("i", response.tobytes()))
    ours.memory.settle()
    ours.step(first.batch, [0] * arguments.batch_size)
    same_trees = bare(depth, finished, first, is_taught=False)
    as_vllm = bare(depth, finished, first, is_taught=True)
    rules = (1.0, 0.0, config.suffix_decoding_min_token_prob, is_tree)
    spent: dict[str, list[float]] = {"ours": [], "same_trees": [], "as_vllm": [], "build": []}

    def run_ours(step: Step) -> list[list[int]]:
        begin = time.thread_time()
        found = ours.step(step.batch, step.batch.max_nodes)
        middle = time.thread_time()
        _ = trees(found) if is_tree else chains(found)
        spent["ours"].append(middle - begin)
        spent["build"].append(time.thread_time() - middle)
        return [draft.token_ids if draft is not None else [] for draft in found]

    def run_same_trees(step: Step) -> list[list[int]]:
        found = []
        begin = time.thread_time()
        for request_id, news, tail in zip(step.batch.request_ids, step.news, step.contexts, strict=True):
            same_trees.add_active_response(request_id, news)
            found.append(same_trees.speculate(request_id, tail, depth, *rules))
        spent["same_trees"].append(time.thread_time() - begin)
        return [draft.token_ids for draft in found]

    def run_as_vllm(step: Step) -> None:
        ends = step.batch.num_tokens
        begin = time.thread_time()
        for row, (request_id, news) in enumerate(zip(step.batch.request_ids, step.news, strict=True)):
            as_vllm.add_active_response(request_id, news)
            as_vllm.speculate(request_id, texts[row][max(0, ends[row] - depth) : ends[row]], depth, *rules)
        spent["as_vllm"].append(time.thread_time() - begin)

    for number, step in enumerate(steps):
        if number % 2:
            run_as_vllm(step)
            expected = run_same_trees(step)
            drafted = run_ours(step)
        else:
            drafted = run_ours(step)
            expected = run_same_trees(step)
            run_as_vllm(step)
        times.num_differences += drafted != expected
        times.num_drafted.append(sum(map(len, drafted)) / len(drafted))
    ours.close(first.batch.request_ids, is_lesson=True)
    begin = time.thread_time()
    ours.memory.settle()
    times.learning.append((time.thread_time() - begin) / len(steps))
    for name, seconds in spent.items():
        getattr(times, name).append(statistics.median(seconds))


def row_of(context: int, times: Times, arguments: argparse.Namespace) -> dict[str, object]:
    """Reduce the rounds of one context to medians, in microseconds per request and step."""
    per_draft = 1e6 / arguments.batch_size
    same, vllm = paired_ratio(times.ours, times.same_trees), paired_ratio(times.ours, times.as_vllm)
    return {
        "context": context,
        "ours_us": statistics.median(times.ours) * per_draft,
        "same_trees_us": statistics.median(times.same_trees) * per_draft,
        "as_vllm_us": statistics.median(times.as_vllm) * per_draft,
        "learning_us": statistics.median(times.learning) * per_draft,
        "build_us": statistics.median(times.build) * per_draft,
        "ratio_to_same_trees": asdict(same),
        "ratio_to_vllm": asdict(vllm),
        "drafted_per_row": statistics.mean(times.num_drafted),
        "num_differences": times.num_differences,
        "rounds": asdict(times) | {"num_drafted": None},
    }


def table(rows: Sequence[dict[str, object]]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    for row in rows:
        ratios = [
            PairedRatio(**cast(dict[str, Any], row[name]))
            for name in ("ratio_to_same_trees", "ratio_to_vllm")
        ]
        shown = [f"{row[name]:.2f}" for name in ("ours_us", "same_trees_us", "as_vllm_us")]
        rest = [f"{row['learning_us']:.2f}", f"{row['build_us']:.2f}", f"{row['drafted_per_row']:.1f}"]
        cells = [row["context"], *shown, *ratios, *rest]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> int:
    """Measure, print the table, write the result."""
    parser = argparse.ArgumentParser(description="what suffix costs beside the bare suffix trees")
    add = parser.add_argument
    add("--contexts", type=int, nargs="+", default=[2_000, 16_000], help="tokens of each prompt")
    add("--batch-size", type=int, default=32)
    add("--steps", type=int, default=100, help="steps per round")
    add("--rounds", type=int, default=9)
    add("--depth", type=int, default=24, help="of the trees; also the most tokens drafted")
    add("--tree", action="store_true", help="draft trees")
    add("--limit", type=float, default=LIMIT, help=f"most times the time of the same trees (default {LIMIT})")
    add("--json", type=Path, help="where to write the result (default: benchmarks/results, not with --quick)")
    add("--quick", action="store_true", help="a smoke run: 2 rounds of 10 steps")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.steps, arguments.rounds = 10, 2
    began = provenance()
    times = {context: Times() for context in arguments.contexts}
    for seed in range(arguments.rounds):
        for context in arguments.contexts:
            run_round(context, arguments, seed, times[context])
    rows = [row_of(context, times[context], arguments) for context in arguments.contexts]
    num_differences = sum(each.num_differences for each in times.values())
    if num_differences:
        print(f"DIVERGENCE: other drafts than the library's in {num_differences} steps", file=sys.stderr)
        return 1
    print(table(rows))
    name = "suffix_cost_tree.json" if arguments.tree else "suffix_cost.json"
    file = arguments.json or (None if arguments.quick else RESULTS / name)
    if file is not None:
        options = {key: value for key, value in vars(arguments).items() if key != "json"}
        versions = {
            package: version(package) for package in ("arctic-inference", "numpy", "specdec-plugin-suffix")
        }
        environment = {**began, "load_average_after": load_average(), "versions": versions}
        write({"environment": environment, "options": options, "rows": rows}, file)
    ratios = [cast(dict[str, float], row["ratio_to_same_trees"])["median"] for row in rows]
    return 0 if max(ratios) <= arguments.limit else 1


if __name__ == "__main__":
    sys.exit(main())
