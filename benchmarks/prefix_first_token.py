"""Time to first token of a repeated long prompt, with plain decoding and with each method.

    python benchmarks/prefix_first_token.py [--quick]

Each prompt begins with a unique token, so the first request has no prefix cache hit. Each prompt is sent twice, one request
at a time. The second request finds whole blocks in the prefix caches of the target and of the draft or head. Texts and
accepted drafts of both requests must be equal; otherwise the command exits with 1.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from common.model import resolve_model
from common.prompts import load_prompts
from common.provenance import load_average, provenance
from common.results import RESULTS, write
from common.stats import paired_ratio

from specdec import LLM, RequestOutput, SamplingParams, SpeculativeOptions

_METHODS = ("none", "draft_model", "eagle", "eagle3", "mtp")


@dataclass(frozen=True)
class Pair:
    """The outputs of a prompt that was sent twice."""

    first: RequestOutput
    second: RequestOutput

    @property
    def is_same(self) -> bool:
        """Whether text and accepted drafts are equal."""
        first, second = self.first, self.second
        return (
            first.outputs[0].token_ids == second.outputs[0].token_ids
            and first.metrics.accepted_per_position == second.metrics.accepted_per_position
        )

    @property
    def seconds(self) -> tuple[float, float]:
        """Time to first token of both requests."""
        times = self.first.metrics.time_to_first_token, self.second.metrics.time_to_first_token
        assert times[0] is not None
        assert times[1] is not None
        return times[0], times[1]


def ask_twice(llm: LLM, prompts: Sequence[list[int]], max_tokens: int) -> list[Pair]:
    """Send each prompt twice, one request at a time."""
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    return [
        Pair(*(llm.generate([{"prompt_token_ids": ids}], params)[0] for _ in range(2))) for ids in prompts
    ]


def measure(method: str, prompts: Sequence[list[int]], arguments: argparse.Namespace) -> dict[str, object]:
    """Return the measurements of one method."""
    config: SpeculativeOptions | None = None
    if method != "none":
        config = {"method": method, "model": "zoo", "num_speculative_tokens": 3, "adaptive": False}
    llm = LLM(model=arguments.model, dtype=arguments.dtype, speculative_config=config, max_num_seqs=4)
    ask_twice(llm, [prompts[0][::-1]], arguments.max_tokens)  # the first request compiles kernels
    pairs = ask_twice(llm, prompts, arguments.max_tokens)
    first, second = zip(*(pair.seconds for pair in pairs), strict=True)
    return {
        "method": method,
        "first_ms": round(1e3 * median(first), 2),
        "second_ms": round(1e3 * median(second), 2),
        "second_over_first": asdict(paired_ratio(second, first)),
        "num_prompt_tokens": len(prompts[0]),
        "num_cached_tokens": [pair.second.num_cached_tokens for pair in pairs],
        "num_same": sum(pair.is_same for pair in pairs),
        "num_accepted_tokens": sum(pair.second.metrics.num_accepted_tokens for pair in pairs),
    }


def long_prompts(model: str, count: int, length: int) -> list[list[int]]:
    """Return prompts of held-out text, each with a unique first token."""
    text = [token for prompt in load_prompts(None, resolve_model(model), 40, length) for token in prompt]
    starts = [37 * index for index in range(count)]
    return [[1 + index, *text[start : start + length - 1]] for index, start in enumerate(starts)]


def main() -> int:
    """Measure, print, write the result."""
    parser = argparse.ArgumentParser(description="time to first token of a prompt that is asked again")
    add = parser.add_argument
    add("--model", default="zoo", help="folder of a model, or zoo (default)")
    add("--methods", nargs="+", default=list(_METHODS), help=f"default: {' '.join(_METHODS)}")
    add("--num-prompts", type=int, default=9, help="default 9; bounds need at least 6")
    add("--length", type=int, default=960, help="tokens of a prompt (default 960)")
    add("--max-tokens", type=int, default=32)
    add("--dtype", default="bfloat16")
    add("--json", type=Path, help="where to write the result (default: benchmarks/results, not with --quick)")
    add("--quick", action="store_true", help="a smoke run: 2 prompts of 200 tokens")
    arguments = parser.parse_args()
    count, length = (2, 200) if arguments.quick else (arguments.num_prompts, arguments.length)
    began = provenance()
    prompts = long_prompts(arguments.model, count, length)
    rows = []
    for method in arguments.methods:
        rows.append(measure(method, prompts, arguments))
        print(json.dumps(rows[-1]), flush=True)
        gc.collect()
    file = arguments.json or (None if arguments.quick else RESULTS / "prefix_first_token.json")
    if file is not None:
        settings = {"dtype": arguments.dtype, "max_tokens": arguments.max_tokens}
        write(
            {"environment": began, "load_average_after": load_average(), "settings": settings, "rows": rows},
            file,
        )
    return 0 if all(row["num_same"] == count for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
