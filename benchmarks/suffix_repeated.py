"""Compare `suffix` with plain decoding on tasks that repeat with small edits.

    python benchmarks/suffix_repeated.py [--quick]

Held-out prompts run once untimed, then repeatedly with one word replaced, timed. Plain decoding and `suffix` alternate at
batch 1, with the same seeds and with prefix caching on, the default. Every round uses other words and new engines, so the
trees contain only the texts of the current round. `strict` gives both the same text; otherwise the command exits with 1.
`distinct_4gram` shows that the text does not loop.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from common.model import resolve_model
from common.prompts import load_prompts
from common.provenance import load_average, provenance
from common.results import RESULTS, write
from common.stats import paired_ratio
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from specdec import LLM, RequestOutput, SamplingParams, SpeculativeOptions
from specdec_bench.statistics import distinct_ratio

_WORDS = ("value", "name", "data", "path", "line", "item", "key", "text", "size", "index", "result", "count")


@dataclass
class Asking:
    """Measurements of one pass over all tasks."""

    plain_s: float = 0.0
    suffix_s: float = 0.0
    num_tokens: int = 0
    num_same: int = 0
    num_accepted: int = 0
    num_drafts: int = 0
    texts: list[list[int]] = field(default_factory=list)


def edited(prompt: list[int], tokenizer: PreTrainedTokenizerBase, chance: random.Random) -> list[int]:
    """Return a prompt with one token replaced by a random word; it replaces a known word if the prompt has one."""
    vocabulary = tokenizer.get_vocab()
    words = {vocabulary[token] for word in _WORDS if (token := f"Ġ{word}") in vocabulary}
    places = [place for place, token in enumerate(prompt) if token in words]
    place = chance.choice(places or range(len(prompt) // 2))
    changed = list(prompt)
    changed[place] = chance.choice(sorted(words - {prompt[place]}))
    return changed


def run_round(
    arguments: argparse.Namespace, config: SpeculativeOptions, index: int, prompts: list[list[int]]
) -> list[Asking]:
    """Run the prompts on new engines, then time both engines alternately on several passes of edited prompts."""
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(arguments.model))
    chance = random.Random(index)
    common = {"dtype": arguments.dtype, "max_num_seqs": 1}
    engines = {
        "plain": LLM(model=arguments.model, **common),
        "suffix": LLM(model=arguments.model, speculative_config=config, **common),
    }
    for number, prompt in enumerate(prompts):
        for engine in engines.values():
            generate(engine, prompt, number, arguments)
    askings = []
    for _ in range(arguments.times):
        gc.collect()
        askings.append(ask(engines, [edited(prompt, tokenizer, chance) for prompt in prompts], arguments))
    return askings


def ask(engines: dict[str, LLM], prompts: list[list[int]], arguments: argparse.Namespace) -> Asking:
    """Run all tasks once on both engines, timed."""
    done = Asking()
    for number, prompt in enumerate(prompts):
        outputs: dict[str, RequestOutput] = {}
        for name in ("plain", "suffix") if number % 2 else ("suffix", "plain"):
            start = time.perf_counter()
            outputs[name] = generate(engines[name], prompt, number, arguments)
            seconds = time.perf_counter() - start
            if name == "plain":
                done.plain_s += seconds
            else:
                done.suffix_s += seconds
        tokens = outputs["plain"].outputs[0].token_ids
        done.texts.append(tokens)
        done.num_tokens += len(tokens)
        done.num_same += tokens == outputs["suffix"].outputs[0].token_ids
        metrics = outputs["suffix"].metrics
        done.num_accepted += metrics.num_accepted_tokens
        done.num_drafts += metrics.num_drafts
    return done


def generate(llm: LLM, prompt: list[int], seed: int, arguments: argparse.Namespace) -> RequestOutput:
    """Generate for one task, with the same seed in every round."""
    params = SamplingParams(
        temperature=arguments.temperature, seed=seed, max_tokens=arguments.max_tokens, ignore_eos=True
    )
    return llm.generate([{"prompt_token_ids": prompt}], params)[0]


def report(rounds: Sequence[Sequence[Asking]]) -> dict[str, object]:
    """Return the summary over all passes of all rounds, then of each pass."""
    return {
        **summary(rounds),
        "distinct_4gram": distinct_ratio(rounds[0][0].texts),
        "by_asking": [summary([[asking] for asking in same]) for same in zip(*rounds, strict=True)],
    }


def summary(rounds: Sequence[Sequence[Asking]]) -> dict[str, object]:
    """Return the speed-up, paired by round, and acceptance statistics."""
    plain, suffix = ([sum(getattr(a, name) for a in r) for r in rounds] for name in ("plain_s", "suffix_s"))
    askings = [asking for askings in rounds for asking in askings]
    num_tokens = sum(asking.num_tokens for asking in askings)
    num_accepted = sum(asking.num_accepted for asking in askings)
    num_drafts = sum(asking.num_drafts for asking in askings)
    return {
        "speedup": asdict(paired_ratio(plain, suffix)),
        "plain_tokens_per_s": num_tokens / sum(plain),
        "suffix_tokens_per_s": num_tokens / sum(suffix),
        "tokens_per_step": num_tokens / (num_tokens - num_accepted),
        "mean_acceptance_length": 1 + num_accepted / num_drafts if num_drafts else 1.0,
        "num_same_text": sum(asking.num_same for asking in askings),
        "num_texts": sum(len(asking.texts) for asking in askings),
    }


def main() -> int:
    """Measure, print, write the result."""
    parser = argparse.ArgumentParser(description="suffix on tasks that are asked again with small edits")
    add = parser.add_argument
    add("--model", default="zoo", help="folder of a model, or zoo (default)")
    add("--num-prompts", type=int, default=50, help="tasks (default 50)")
    add("--max-tokens", type=int, default=64)
    add("--temperature", type=float, default=0.8)
    add("--dtype", default="bfloat16")
    add("--k", type=int, default=16, help="most tokens drafted in a step (default 16)")
    add("--spec-factor", type=float, default=2.0, help="suffix_decoding_max_spec_factor (default 2)")
    add("--min-token-prob", type=float, default=0.25, help="suffix_decoding_min_token_prob (default 0.25)")
    add("--times", type=int, default=8, help="how often the tasks are asked again (default 8)")
    add("--rounds", type=int, default=7, help="default 7; bounds need at least 6")
    add("--json", type=Path, help="where to write the result (default: benchmarks/results, not with --quick)")
    add("--quick", action="store_true", help="a smoke run: 4 tasks, asked twice again, 2 rounds")
    arguments = parser.parse_args()
    num_prompts, num_rounds = (4, 2) if arguments.quick else (arguments.num_prompts, arguments.rounds)
    if arguments.quick:
        arguments.times = 2
    began = provenance()
    prompts = load_prompts(None, resolve_model(arguments.model), num_prompts, 1024 - arguments.max_tokens - 1)
    config: SpeculativeOptions = {
        "method": "suffix",
        "num_speculative_tokens": arguments.k,
        "suffix_decoding_max_spec_factor": arguments.spec_factor,
        "suffix_decoding_min_token_prob": arguments.min_token_prob,
    }
    rounds = []
    for index in range(num_rounds):
        print(f"round {index + 1} of {num_rounds}", file=sys.stderr, flush=True)
        rounds.append(run_round(arguments, config, index, prompts))
    found = report(rounds)
    print(json.dumps(found, indent=1))
    file = arguments.json or (None if arguments.quick else RESULTS / "suffix_repeated.json")
    if file is not None:
        settings = {
            "config": config,
            "max_tokens": arguments.max_tokens,
            "temperature": arguments.temperature,
            "dtype": arguments.dtype,
        }
        write(
            {"environment": began, "load_average_after": load_average(), "settings": settings, **found}, file
        )
    return 0 if found["num_same_text"] == found["num_texts"] else 1


if __name__ == "__main__":
    sys.exit(main())
