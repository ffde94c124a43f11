"""Greedy texts of an engine with every method, as its adapter's class for `specdec check` runs it, beside those without.

    python adapters/hosting/tests/real/texts.py transformers [--model DIR] [--methods JSON ...] [--keep FILE]

For engines in this process; `adapters/vllm` and `adapters/sglang` have scripts of their own. Exits with 1 if a text differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path

from tried import HOSTILE, RESULTS, Tried, by_short_name, keep, name_of, of_readme, shown, target_of

from specdec import LLM, SamplingParams
from specdec_testing.hosts import find_host, target_for
from specdec_zoo.prompts import prompts

DISTRIBUTIONS = {"transformers": "transformers", "llama_cpp": "llama-cpp-python"}
NUM_TOKENS = (32, 25, 18)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("host", choices=DISTRIBUTIONS)
    parser.add_argument("--model", default="zoo", help="a directory, or a file that specdec loads too")
    parser.add_argument("--methods", nargs="+", type=json.loads, help="the configurations, one for each run")
    parser.add_argument("--keep", nargs="?", const=RESULTS, type=Path, help="a file for the results")
    arguments = parser.parse_args()
    methods = arguments.methods or [
        *({"method": method} for method in ("ngram", "ngram_gpu", "suffix", "recycling")),
        {"method": "composite", "proposers": [{"method": "suffix"}, {"method": "ngram"}]},
        *({"method": method, "model": "zoo"} for method in ("draft_model", "eagle", "eagle3", "mtp")),
        of_readme(),
        HOSTILE,
    ]
    llm = LLM(arguments.model, dtype="float32")
    asked = [llm.get_tokenizer()(each["prompt"])["input_ids"][-200:] for each in prompts(6)]
    counts = [NUM_TOKENS[row % len(NUM_TOKENS)] for row in range(len(asked))]
    params = [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in counts]
    expected = [output.outputs[0].token_ids for output in llm.generate(asked, params, use_tqdm=False)]
    llm.shutdown()
    host = find_host(arguments.host)
    kept, model = [], target_for(host, arguments.model)
    for method in methods:
        config = {"num_speculative_tokens": 5, "adaptive": False} | method
        engine = host(model, config, caches_prefixes=True, max_model_len=512)
        texts = [text for _ in range(2) for text in engine.generate(asked, counts)]
        counters = by_short_name(engine.counters())
        engine.close()
        same = sum(a == b for a, b in zip(texts, expected * 2, strict=True))
        print(f"{json.dumps(method)}: {same} of {len(texts)} texts equal\n   ", shown(counters), flush=True)
        numbers = (counters[f"num_{name}"] for name in ("drafts", "draft_tokens", "accepted_tokens"))
        sampler = "strict" if arguments.host == "transformers" else "llama.cpp's"
        row = (
            arguments.host.replace("_", "."),
            target_of(model),
            name_of(method),
            "in_time",
            "chain",
            sampler,
        )
        kept.append(Tried(*row, version(DISTRIBUTIONS[arguments.host]), "0.0", same, len(texts), *numbers))
    if arguments.keep is not None:
        keep(arguments.keep, kept)
    return int(any(row.num_equal != row.num_texts for row in kept))


if __name__ == "__main__":
    sys.exit(main())
