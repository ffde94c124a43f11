"""SmolLM2's 4-bit file with its weights in their blocks, beside the same widened to bfloat16: tokens per second of decoding.

    python benchmarks/own_width.py [--tokens 128] [--json FILE]

One request at a time. All engines are in one process and take turns, each question once.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path

from common.provenance import load_average, provenance
from common.results import RESULTS

from specdec import LLM, SamplingParams

QUESTIONS = (
    "Explain how a bicycle stays upright.",
    "Write a Python function that reads a CSV file and returns the mean of each column.",
    "Write this again, with Tom in place of Anna: Anna went to the market. Anna bought apples. Then Anna went home.",
    "List ten facts about the moon.",
    "A train goes 60 km in 45 minutes. How far does it go in two hours? Explain each step.",
    "Summarize in two sentences: The fox jumps over the lazy dog. The dog sleeps on. Later the fox returns, and the dog barks.",
    "What should a beginner know about growing tomatoes?",
    "Write a Python class for a stack, with a docstring for each method.",
    "Translate to French: The weather is nice today, and we are going to the beach with our friends.",
    "Why is the sky blue, and why is it red in the evening?",
    "Write an email that moves a meeting from Monday to Tuesday.",
    'Write this JSON again with the key name in place of title: {"title": "Emma", "year": 1815, "title_of": "novel"}',
)
"""Each is asked once of every engine, since some methods remember answers; the first two are not counted."""
METHODS = (None, "ngram", "auto")
WIDTHS = ("published", "widen")
TEMPERATURES = (0.0, 0.8)


def timed(llm: LLM, question: str, temperature: float, tokens: int) -> tuple[int, float]:
    """Return the tokens of an answer and their seconds, without the first one."""
    params = SamplingParams(temperature=temperature, seed=1, max_tokens=tokens, ignore_eos=True)
    [output] = llm.chat([{"role": "user", "content": question}], params)
    first = output.metrics.time_to_first_token
    assert first is not None
    return len(output.outputs[0].token_ids) - 1, output.metrics.total_time - first


def main() -> int:
    """Take turns, print and write the rates."""
    parser = argparse.ArgumentParser(description="weights in blocks beside the same widened")
    parser.add_argument("--tokens", type=int, default=128)
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
    totals: dict[tuple[str, str | None, float], list[float]] = {}
    for number, question in enumerate(QUESTIONS):
        temperature = TEMPERATURES[number % 2]
        for weights, method in cases[:: 1 - 2 * (number // 2 % 2)]:
            count, seconds = timed(engines[weights, method], question, temperature, arguments.tokens)
            if number > 1:
                total = totals.setdefault((weights, method, temperature), [0, 0.0])
                total[0], total[1] = total[0] + count, total[1] + seconds
    rows = [
        [weights, method or "plain", temperature, count, round(seconds, 3), float(f"{count / seconds:.3g}")]
        for (weights, method, temperature), (count, seconds) in sorted(totals.items(), key=str)
    ]
    for row in rows:
        print(*row)
    content = {
        "environment": began | {"load_average_after": load_average()},
        "settings": {"tokens": arguments.tokens, "questions": len(QUESTIONS)},
        "columns": ["weights", "method", "temperature", "tokens", "seconds", "tokens_per_s"],
        "rows": rows,
    }
    file = arguments.json or RESULTS / "own_width.json"
    file.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
