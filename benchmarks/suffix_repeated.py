"""`suffix` where the same tasks are asked again with small edits, against plain decoding.

    python benchmarks/suffix_repeated.py [--quick]

Held-out prompts are asked once, untimed, then again with one word replaced by another, timed: plain and with `suffix`,
at batch 1, turn about, the same seeds. Every round takes other words and a new engine, so nothing is remembered from one
round to the next but what the first asking taught. `strict` gives both the same text; where it does not, the command
exits with 1. `distinct_4gram` says that text does not loop.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from common.prompts import load_prompts, resolve_model
from common.provenance import load_average, provenance
from common.results import RESULTS, write
from common.stats import paired_ratio
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from specdec import LLM, RequestOutput, SamplingParams
from specdec.bench.statistics import distinct_ratio

_WORDS = ("value", "name", "data", "path", "line", "item", "key", "text", "size", "index", "result", "count")


@dataclass
class Round:
    """What one round measured."""

    plain_s: list[float] = field(default_factory=list)
    suffix_s: list[float] = field(default_factory=list)
    num_tokens: int = 0
    num_same: int = 0
    num_accepted: int = 0
    num_drafts: int = 0
    texts: list[list[int]] = field(default_factory=list)


def edited(prompt: list[int], tokenizer: PreTrainedTokenizerBase, chance: random.Random) -> list[int]:
    """Return a prompt in which one token is another: a word for a word where there is one, in some place."""
    vocabulary = tokenizer.get_vocab()
    words = {vocabulary[token] for word in _WORDS if (token := f"Ġ{word}") in vocabulary}
    places = [place for place, token in enumerate(prompt) if token in words]
    place = chance.choice(places or range(len(prompt) // 2))
    changed = list(prompt)
    changed[place] = chance.choice(sorted(words - {prompt[place]}))
    return changed


def run_round(
    arguments: argparse.Namespace, config: dict[str, object], index: int, prompts: list[list[int]]
) -> Round:
    """Teach a new engine, then time both on edited prompts, turn about."""
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(arguments.model))
    chance = random.Random(index)
    asked = [edited(prompt, tokenizer, chance) for prompt in prompts]
    common = {"dtype": arguments.dtype, "max_num_seqs": 1, "enable_prefix_caching": False}
    plain = LLM(model=arguments.model, **common)
    suffix = LLM(model=arguments.model, speculative_config=config, **common)
    for number, prompt in enumerate(prompts):
        generate(suffix, prompt, number, arguments)
    generate(plain, prompts[0], 0, arguments)
    done = Round()
    for number, prompt in enumerate(asked):
        outputs: dict[str, RequestOutput] = {}
        for name in ("plain", "suffix") if (number + index) % 2 else ("suffix", "plain"):
            start = time.perf_counter()
            outputs[name] = generate(plain if name == "plain" else suffix, prompt, number, arguments)
            seconds = time.perf_counter() - start
            (done.plain_s if name == "plain" else done.suffix_s).append(seconds)
        tokens = outputs["plain"].outputs[0].token_ids
        done.texts.append(tokens)
        done.num_tokens += len(tokens)
        done.num_same += tokens == outputs["suffix"].outputs[0].token_ids
        metrics = outputs["suffix"].metrics
        done.num_accepted += metrics.num_accepted_tokens
        done.num_drafts += metrics.num_drafts
    return done


def generate(llm: LLM, prompt: list[int], seed: int, arguments: argparse.Namespace) -> RequestOutput:
    """Generate for one task; its seed is its own in every round."""
    params = SamplingParams(
        temperature=arguments.temperature, seed=seed, max_tokens=arguments.max_tokens, ignore_eos=True
    )
    return llm.generate([{"prompt_token_ids": prompt}], params)[0]


def report(rounds: Sequence[Round], num_prompts: int) -> dict[str, object]:
    """Return the numbers of all rounds."""
    ratio = paired_ratio([sum(r.plain_s) for r in rounds], [sum(r.suffix_s) for r in rounds])
    num_drafts = sum(r.num_drafts for r in rounds)
    return {
        "speedup": asdict(ratio),
        "plain_tokens_per_s": sum(r.num_tokens for r in rounds) / sum(sum(r.plain_s) for r in rounds),
        "suffix_tokens_per_s": sum(r.num_tokens for r in rounds) / sum(sum(r.suffix_s) for r in rounds),
        "tokens_per_step": sum(r.num_tokens for r in rounds)
        / (sum(r.num_tokens for r in rounds) - sum(r.num_accepted for r in rounds)),
        "mean_acceptance_length": 1 + sum(r.num_accepted for r in rounds) / num_drafts if num_drafts else 1.0,
        "num_same_text": sum(r.num_same for r in rounds),
        "num_texts": num_prompts * len(rounds),
        "distinct_4gram": distinct_ratio([text for r in rounds[:1] for text in r.texts]),
    }


def main() -> int:
    """Measure, print, write the result."""
    parser = argparse.ArgumentParser(description="suffix on tasks that are asked again with small edits")
    add = parser.add_argument
    add("--model", default="zoo", help="folder of a model, or zoo (default)")
    add("--num-prompts", type=int, default=50, help="tasks (default 50)")
    add("--max-tokens", type=int, default=64)
    add("--temperature", type=float, default=0.8)
    add("--dtype", default="float32")
    add("--k", type=int, default=16, help="most tokens drafted in a step (default 16)")
    add("--rounds", type=int, default=7, help="default 7; bounds need at least 6")
    add("--json", type=Path, help="where to write the result (default: benchmarks/results, not with --quick)")
    add("--quick", action="store_true", help="a smoke run: 4 tasks, 2 rounds")
    arguments = parser.parse_args()
    num_prompts, num_rounds = (4, 2) if arguments.quick else (arguments.num_prompts, arguments.rounds)
    began = provenance()
    prompts = load_prompts(None, resolve_model(arguments.model), num_prompts, 1024 - arguments.max_tokens - 1)
    config: dict[str, object] = {"method": "suffix", "num_speculative_tokens": arguments.k}
    rounds = []
    for index in range(num_rounds):
        print(f"round {index + 1} of {num_rounds}", file=sys.stderr, flush=True)
        rounds.append(run_round(arguments, config, index, prompts))
    found = report(rounds, num_prompts)
    for name, value in found.items():
        print(f"{name}: {value}")
    file = arguments.json or (None if arguments.quick else RESULTS / "suffix_repeated.json")
    if file is not None:
        settings = {
            "config": config,
            "max_tokens": arguments.max_tokens,
            "temperature": arguments.temperature,
        }
        write(
            {"environment": began, "load_average_after": load_average(), "settings": settings, **found}, file
        )
    return 0 if found["num_same_text"] == found["num_texts"] else 1


if __name__ == "__main__":
    sys.exit(main())
