"""Cost of verifying a draft: the time of a step with 1, 2, 4 ... rows, compared with reading the weights alone.

    python benchmarks/verified_rows.py [--model smollm2] [--dtype bfloat16] [--quick]

A row is the last committed token or a drafted one. A proposer drafts one token for each further row; almost none is
accepted. The step time is that of the whole engine step at batch 1 without proposing. It is compared with the products with
weights alone, in the order of a pass. The bound is the time to sum an array with as many bytes as the weights, with as many
threads. All are timed alternately, in rounds; ratios are formed within a round.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from common.model import resolve_model
from common.prompts import load_prompts
from common.provenance import load_average, provenance
from common.results import RESULTS, write
from common.stats import PairedRatio, paired_ratio
from transformers import PreTrainedModel

from specdec import SamplingParams
from specdec.engine_options import EngineOptions
from specdec.frontend import build
from specdec.loading.target import load_target
from specdec_kernels.cpu.loops.lanes import HAS_BFLOAT16_PAIRS
from specdec_kernels.cpu.loops.product import Weights, compact, multiply

ROWS = (1, 2, 4, 6, 8, 16)
_COLUMNS = ("rows", "step ms", "products ms", "over one row [95 %]", "share of the bound")


@dataclass(frozen=True)
class Round:
    """Milliseconds of one round."""

    bound: float
    steps: dict[int, float]
    """Step time by number of rows."""
    products: dict[int, float]
    """Time of the products with weights by number of rows."""


@dataclass(frozen=True)
class Cost:
    """Time of a step with a given number of rows."""

    num_rows: int
    step_ms: float
    """Median over the rounds."""
    products_ms: float
    """Time of the products with weights alone; median over the rounds."""
    over_one: PairedRatio
    """Ratio of the step time to that of a step with one row."""
    share_of_bound: PairedRatio
    """Time of reading the weights as a share of the step time."""


class Stepper:
    """An engine that verifies a given number of rows per step.

    Args:
        model: folder of the target.
        dtype: of its arithmetic.
        most_rows: maximum rows of a step.
        prompt: token ids of the prompt.
    """

    def __init__(self, model: Path, dtype: str, most_rows: int, prompt: list[int]) -> None:
        self._prompt = prompt
        target = load_target(EngineOptions(model=str(model), dtype=dtype))
        self.num_bytes = _num_bytes(target.model)
        """Bytes of all weights that a step reads."""
        self._weights = _weights(target.model)
        self._built, self._intake = build(
            target,
            {
                "method": "custom_class",
                "model": "common.wrong_drafts.WrongDrafts",
                "num_speculative_tokens": most_rows,
            },
            {"max_num_seqs": 1},
        )

    def step_ms(self, num_rows: int, num_steps: int) -> float:
        """Return the median time of `num_steps` steps with `num_rows` rows."""
        engine = self._built.engine
        params = SamplingParams(
            temperature=0,
            max_tokens=num_steps + 2 * num_rows,
            ignore_eos=True,
            speculative={"num_speculative_tokens": num_rows - 1},
        )
        request = self._intake.prepare(self._intake.next_id(), self._prompt, params, is_streaming=False)
        engine.add(request)
        found = []
        while engine.has_work:
            engine.step()
            stats = engine.last_step
            assert stats is not None
            if stats.num_prompt_tokens == 0 and stats.num_draft_tokens == num_rows - 1:
                found.append(stats.schedule_ms + stats.score_ms + stats.verify_ms + stats.commit_ms)
        return median(found)

    def products_ms(self, num_rows: int, times: int) -> float:
        """Return the median time of all products with weights in a pass with `num_rows` rows."""
        is_rounded = HAS_BFLOAT16_PAIRS and all(weight.dtype == np.uint16 for weight in self._weights)
        inputs = {
            weight.shape[1]: np.ones((num_rows, weight.shape[1]), np.float32) for weight in self._weights
        }
        outputs = [np.empty((num_rows, weight.shape[0]), np.float32) for weight in self._weights]
        found = []
        for _ in range(times):
            start = time.perf_counter()
            for weight, output in zip(self._weights, outputs, strict=True):
                multiply(inputs[weight.shape[1]], weight, output, is_rounded)
            found.append(1e3 * (time.perf_counter() - start))
        return median(found)


def _weights(model: PreTrainedModel) -> list[Weights]:
    """Return the weights of a Llama-like model, fused as in a forward pass."""
    joined = []
    for layer in model.get_decoder().layers:
        attention, mlp = layer.self_attn, layer.mlp
        joined += [
            torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]),
            attention.o_proj.weight,
            torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
            mlp.down_proj.weight,
        ]
    found = [compact(weight.detach()) for weight in (*joined, model.get_output_embeddings().weight)]
    assert all(weight is not None for weight in found)
    return [weight for weight in found if weight is not None]


def _num_bytes(model: PreTrainedModel) -> int:
    """Return the bytes of the weights, without the input embedding unless the head is tied to it."""
    embedding = model.get_input_embeddings()
    is_shared = model.get_output_embeddings().weight is embedding.weight
    unread = 0 if is_shared else sum(parameter.nbytes for parameter in embedding.parameters())
    return sum(parameter.nbytes for parameter in model.parameters()) - unread


def read_ms(array: torch.Tensor, times: int = 5) -> float:
    """Return the median time to sum an array."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        array.sum()
        found.append(1e3 * (time.perf_counter() - start))
    return median(found)


def reduce(rounds: Sequence[Round]) -> list[Cost]:
    """Return the cost for every number of rows."""
    ones, bounds = [round_.steps[1] for round_ in rounds], [round_.bound for round_ in rounds]
    costs = []
    for number in sorted(rounds[0].steps):
        steps = [round_.steps[number] for round_ in rounds]
        products = median(round_.products[number] for round_ in rounds)
        ratios = paired_ratio(steps, ones), paired_ratio(bounds, steps)
        costs.append(Cost(number, median(steps), products, *ratios))
    return costs


def table(costs: Sequence[Cost]) -> str:
    """Return the costs as a Markdown table."""
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += [
        f"| {cost.num_rows} | {cost.step_ms:.2f} | {cost.products_ms:.2f} | {cost.over_one} | {cost.share_of_bound} |"
        for cost in costs
    ]
    return "\n".join(lines)


def main() -> int:
    """Measure, print the table, write the result."""
    parser = argparse.ArgumentParser(description="what verifying costs by the number of rows")
    add = parser.add_argument
    add("--model", default="smollm2", help="a folder, a GGUF file, zoo or smollm2 (default)")
    add("--dtype", default="bfloat16")
    add("--rows", nargs="+", type=int, default=list(ROWS), help="default: %(default)s")
    add("--context", type=int, default=200, help="tokens of the prompt (default 200)")
    add("--steps", type=int, default=32, help="steps of each number of rows in a round (default 32)")
    add("--rounds", type=int, default=9, help="default 9; bounds need at least 6")
    add("--json", type=Path, help="where to write the result (default: benchmarks/results, not with --quick)")
    add("--quick", action="store_true", help="a smoke run: 2 rounds of 4 steps")
    arguments = parser.parse_args()
    num_steps, num_rounds = (4, 2) if arguments.quick else (arguments.steps, arguments.rounds)
    began = provenance()
    model = resolve_model(arguments.model)
    numbers = sorted({1, *arguments.rows})
    texts = [token for prompt in load_prompts(None, model, 8, 1024) for token in prompt]
    stepper = Stepper(model, arguments.dtype, numbers[-1], texts[: arguments.context])
    array = torch.ones(stepper.num_bytes // 4, dtype=torch.float32)
    for number in numbers:
        stepper.step_ms(number, 2)
    rounds: list[Round] = []
    for index in range(num_rounds):
        print(f"round {index + 1} of {num_rounds}", file=sys.stderr, flush=True)
        turn = numbers if index % 2 else numbers[::-1]
        steps = {number: stepper.step_ms(number, num_steps) for number in turn}
        products = {number: stepper.products_ms(number, num_steps) for number in turn}
        rounds.append(Round(read_ms(array), steps, products))
    costs = reduce(rounds)
    print(table(costs))
    print(f"bound: {stepper.num_bytes / 1e6:.0f} MB in {median(r.bound for r in rounds):.2f} ms")
    file = arguments.json or (None if arguments.quick else RESULTS / "verified_rows.json")
    if file is not None:
        settings = {name: getattr(arguments, name) for name in ("model", "dtype", "context", "steps")}
        content: dict[str, Any] = {
            "environment": began,
            "load_average_after": load_average(),
            "settings": settings,
            "num_bytes": stepper.num_bytes,
            "num_threads": torch.get_num_threads(),
            "costs": [asdict(cost) for cost in costs],
            "rounds_ms": [asdict(round_) for round_ in rounds],
        }
        write(content, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
