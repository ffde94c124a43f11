"""Predicted outputs and forced tokens beside plain decoding, all texts held equal.

    python benchmarks/expected_tokens.py [--model smollm2] [--rounds 6] [--json-outputs 200] [--quick]

The answer of plain decoding is the edited text; what was there before, the prediction, is made from it: another name in
all places (`renamed`), every 20th word missing (`cut`), its first half, or a text that has nothing to do with it (`useless`).
`JSON` are answers in a strict schema, whose forced tokens are drafted. Greedy and at temperature 0.8, one request at a time.
Then 200 such answers are sampled in one call, and each is checked: valid, and that of plain decoding.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.provenance import provenance
from common.results import RESULTS, write
from common.stats import paired_ratio
from jsonschema import Draft202012Validator

from specdec import LLM, SamplingParams, StructuredOutputsParams

QUESTIONS = (
    "Write a Python class Stack with push, pop, peek, size and is_empty, with docstrings, and then a test for each of them.",
    "Write a letter to a customer whose order of books comes two weeks late, and offer a discount.",
)
ORDERS = [
    f"Write the order of {name} as JSON: three books to a street in Berlin."
    for name in ("Ada", "Bob", "Carla")
]
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["customer_name", "order_identifier", "shipping_address", "total_amount", "is_express_delivery"],
    "properties": {
        "customer_name": {"type": "string", "maxLength": 24},
        "order_identifier": {"type": "integer", "maximum": 99999},
        "shipping_address": {
            "type": "object",
            "additionalProperties": False,
            "required": ["street_name", "house_number"],
            "properties": {
                "street_name": {"type": "string", "maxLength": 24},
                "house_number": {"type": "integer", "maximum": 999},
            },
        },
        "total_amount": {"type": "integer", "maximum": 9999},
        "is_express_delivery": {"type": "boolean"},
    },
}  # fmt: skip


def renamed(text: str) -> str:
    """Return a text with its most frequent long word replaced everywhere."""
    words = [
        word for word in text.replace("(", " ").replace(".", " ").split() if len(word) > 3 and word.isalpha()
    ]
    return text.replace(max(set(words), key=words.count), "previous_name") if words else text


PREDICTIONS: dict[str, Callable[[str], str]] = {
    "exact": lambda text: text,
    "renamed": renamed,
    "cut": lambda text: " ".join(word for place, word in enumerate(text.split(" ")) if place % 20 != 7),
    "first half": lambda text: text[: len(text) // 2],
    "useless": lambda text: "The quick brown fox jumps over the lazy dog. " * (len(text) // 40),
}


@dataclass(frozen=True)
class Row:
    """One kind of expected tokens at one temperature."""

    name: str
    temperature: float
    speedup: float
    low: float
    high: float
    drafted: int
    accepted: int


def asked(llm: LLM, question: str, params: SamplingParams) -> tuple[float, Any]:
    """Return the seconds and the output of one answer."""
    began = time.perf_counter()
    output = llm.chat([{"role": "user", "content": question}], params, use_tqdm=False)[0]
    return time.perf_counter() - began, output


def measured(llm: LLM, temperature: float, num_tokens: int, rounds: int) -> list[Row]:
    """Measure all kinds in turns; raises if a text differs."""
    common: dict[str, Any] = {"temperature": temperature, "seed": 3, "max_tokens": num_tokens}
    tasks = [(question, {"ignore_eos": True}) for question in QUESTIONS]
    orders: list[tuple[str, dict[str, Any]]] = [
        (order, {"structured_outputs": {"json": SCHEMA}}) for order in ORDERS
    ]
    seconds: dict[tuple[str, str], list[float]] = {}
    counts: dict[str, list[int]] = {}
    for question, keys in [*tasks, *orders]:  # warm-up: compiles, and puts the prompts into the prefix cache
        asked(llm, question, SamplingParams(**common | {"max_tokens": 8}, **keys))
    for _ in range(rounds):
        for question, keys in [*tasks, *orders]:
            is_json = "structured_outputs" in keys
            taken, base = asked(llm, question, SamplingParams(**common, **keys, speculative=False))
            seconds.setdefault(("plain", question), []).append(taken)
            kinds = (
                {"JSON": None}
                if is_json
                else {name: make(base.outputs[0].text) for name, make in PREDICTIONS.items()}
            )
            for name, prediction in kinds.items():
                taken, output = asked(llm, question, SamplingParams(**common, **keys, prediction=prediction))
                if output.outputs[0].token_ids != base.outputs[0].token_ids:
                    raise RuntimeError(f"{name}: the text is another one")
                seconds.setdefault((name, question), []).append(taken)
                counts.setdefault(name, [0, 0])
                counts[name][0] += output.metrics.num_draft_tokens
                counts[name][1] += output.metrics.num_accepted_tokens
    rows = []
    for name, (drafted, accepted) in counts.items():
        own = [key for key in seconds if key[0] == name]
        ratio = paired_ratio(
            [taken for _, question in own for taken in seconds["plain", question]],
            [taken for key in own for taken in seconds[key]],
        )
        rows.append(Row(name, temperature, ratio.median, ratio.low, ratio.high, drafted, accepted))
    return rows


def checked(llm: LLM, count: int) -> dict[str, float]:
    """Return how many of `count` sampled JSON answers are valid, equal plain decoding's, and how much faster they came."""
    questions = [
        [{"role": "user", "content": f"Write order {n} of {name} as JSON."}]
        for n, name in enumerate(("Ada", "Bob", "Carla", "Dan") * -(-count // 4))
    ][:count]
    own = StructuredOutputsParams(json=SCHEMA)
    taken, texts = [], []
    for speculative in (False, None):
        params = [
            SamplingParams(
                temperature=0.8, seed=n, max_tokens=200, structured_outputs=own, speculative=speculative
            )
            for n in range(count)
        ]  # fmt: skip
        began = time.perf_counter()
        outputs = llm.chat(questions, params, use_tqdm=False)
        taken.append(time.perf_counter() - began)
        texts.append([output.outputs[0].text for output in outputs])
    validator = Draft202012Validator(SCHEMA)
    return {
        "outputs": count,
        "valid": sum(is_valid(validator, text) for text in texts[1]),
        "same_as_plain": sum(map(str.__eq__, *texts)),
        "different_texts": len(set(texts[1])),
        "speedup": taken[0] / taken[1],
    }


def is_valid(validator: Draft202012Validator, text: str) -> bool:
    """Return whether a text is JSON of a schema."""
    try:
        return bool(validator.is_valid(json.loads(text)))
    except ValueError:
        return False


def main() -> int:
    """Measure, print the table, write the result."""
    parser = argparse.ArgumentParser(description="predicted outputs and forced tokens beside plain decoding")
    add = parser.add_argument
    add("--model", default="smollm2")
    add("--rounds", type=int, default=6)
    add("--max-tokens", type=int, default=400)
    add("--json-outputs", type=int, default=200, help="JSON answers that are checked")
    add("--json", type=Path, help="where to write the result (default: benchmarks/results, not with --quick)")
    add("--quick", action="store_true", help="a smoke run: one round of 32 tokens")
    arguments = parser.parse_args()
    began = provenance()
    llm = LLM(arguments.model, dtype="bfloat16", deterministic=True)
    num_tokens, rounds = (32, 1) if arguments.quick else (arguments.max_tokens, arguments.rounds)
    rows = [row for temperature in (0.0, 0.8) for row in measured(llm, temperature, num_tokens, rounds)]
    print("| drafts from | temperature | times plain | accepted of drafted |\n|---|---|---|---|")
    for row in rows:
        bounds = f"{row.speedup:.2f} [{row.low:.2f}, {row.high:.2f}]"
        print(f"| {row.name} | {row.temperature} | {bounds} | {row.accepted} of {row.drafted} |")
    found = checked(llm, 4 if arguments.quick else arguments.json_outputs)
    print("JSON: " + ", ".join(f"{name} {value:.3g}" for name, value in found.items()))
    file = arguments.json or (None if arguments.quick else RESULTS / "expected_tokens.json")
    if file is not None:
        write(
            {
                "environment": began,
                "settings": {"max_tokens": num_tokens, "rounds": rounds},
                "rows": [row.__dict__ for row in rows],
                "json": found,
            },
            file,
        )
    return 0 if found["valid"] == found["same_as_plain"] == found["outputs"] else 1


if __name__ == "__main__":
    sys.exit(main())
