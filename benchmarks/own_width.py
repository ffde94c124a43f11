"""SmolLM2's 4-bit file with its weights in their blocks, beside the same widened to bfloat16: tokens per second of decoding.

    python benchmarks/own_width.py [--rounds 4] [--tokens 96] [--json FILE]

One request at a time. All engines are in one process and take turns on the same questions, after one round that is not counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path
from statistics import median

from common.provenance import load_average, provenance
from common.results import RESULTS

from specdec import LLM, SamplingParams

QUESTIONS = (
    "Explain how a bicycle stays upright.",
    "Write a Python function that reads a CSV file and returns the mean of each column.",
    "List ten facts about the moon.",
    "Write this again, with Tom in place of Anna: Anna went to the market. Anna bought apples. Then Anna went home.",
    "A train goes 60 km in 45 minutes. How far does it go in two hours? Explain each step.",
    "Summarize in two sentences: The fox jumps over the lazy dog. The dog sleeps on. Later the fox returns, and the dog barks.",
)
METHODS = (None, "ngram", "suffix", "auto")
WIDTHS = ("published", "widen")
TEMPERATURES = (0.0, 0.8)


def rate(llm: LLM, temperature: float, tokens: int) -> float:
    """Return the tokens per second of all answers, without their first tokens."""
    params = SamplingParams(temperature=temperature, seed=1, max_tokens=tokens, ignore_eos=True)
    count = seconds = 0.0
    for question in QUESTIONS:
        [output] = llm.chat([{"role": "user", "content": question}], params)
        first = output.metrics.time_to_first_token
        assert first is not None
        count += len(output.outputs[0].token_ids) - 1
        seconds += output.metrics.total_time - first
    return count / seconds


def main() -> int:
    """Take turns, print and write the medians."""
    parser = argparse.ArgumentParser(description="weights in blocks beside the same widened")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--json", type=Path, help="where to write the result (default: benchmarks/results)")
    arguments = parser.parse_args()
    began = provenance()
    cases = list(product(WIDTHS, METHODS))
    engines = {
        (weights, method): LLM(
            "smollm2",
            speculative_config=None if method is None else {"method": method},
            weights=weights,
            max_model_len=512,
        )
        for weights, method in cases
    }
    rates: dict[tuple[str, str | None, float], list[float]] = {}
    for number in range(arguments.rounds + 1):
        for (weights, method), temperature in product(cases[:: 1 - 2 * (number % 2)], TEMPERATURES):
            found = rate(engines[weights, method], temperature, arguments.tokens)
            if number:
                rates.setdefault((weights, method, temperature), []).append(found)
    rows = [
        [
            weights,
            method or "plain",
            temperature,
            float(f"{median(found):.3g}"),
            [float(f"{each:.3g}") for each in found],
        ]
        for (weights, method, temperature), found in sorted(rates.items(), key=str)
    ]
    for row in rows:
        print(*row)
    content = {
        "environment": began | {"load_average_after": load_average()},
        "settings": {"rounds": arguments.rounds, "tokens": arguments.tokens, "questions": len(QUESTIONS)},
        "columns": ["weights", "method", "temperature", "tokens_per_s", "rounds"],
        "rows": rows,
    }
    file = arguments.json or RESULTS / "own_width.json"
    file.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
