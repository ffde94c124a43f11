"""Compare specdec with `generate` of transformers: same model, same prompts, same tokens, interleaved.

    python benchmarks/compare_transformers.py            # minutes to an hour, on a quiet machine
    python benchmarks/compare_transformers.py --quick    # a smoke run

Without speculation: one prompt at a time, and a batch of prompts of different lengths, left-padded by
transformers. With prompt lookup and with a draft model (`--methods`): one prompt at a time, because
transformers does not support batches there. Greedy; both sides ignore end-of-text tokens.
"""

from __future__ import annotations

import sys

from common.case import Case
from common.options import Options, make_parser, read_options
from common.run import read_prompts, run
from common.speculation import METHODS, speculations
from common.variants import ours, transformers


def make_cases(options: Options, batch_size: int, methods: list[str], matches: list[str]) -> list[Case]:
    """Return the cases for every dtype."""
    alone = read_prompts(options, options.num_prompts)
    together = read_prompts(options, batch_size)
    cases = []
    for dtype in options.dtypes:
        without = (ours(dtype), transformers(dtype))
        speculating = [
            (ours(dtype, speculation), transformers(dtype, speculation))
            for speculation in speculations(options, methods, matches)
        ]
        cases.append(Case(dtype, 1, alone, (without, *speculating)))
        if batch_size > 1:
            cases.append(Case(dtype, batch_size, together, (without,)))
    return cases


def main() -> int:
    """Run the comparison."""
    parser = make_parser("specdec against transformers generate", num_prompts=6, k=[4, 10])
    parser.add_argument(
        "--batch-size", type=int, default=16, help="prompts of the batch; 1: none (default 16)"
    )
    # transformers has neither suffix trees nor EAGLE heads.
    known = [method for method in METHODS if method not in ("suffix", "eagle3")]
    parser.add_argument("--methods", nargs="+", choices=known, default=["ngram"], help="default: ngram")
    parser.add_argument("--match", nargs="+", default=["recent"], help="recent (default), first, or both")
    arguments = parser.parse_args()
    options = read_options(arguments)
    cases = make_cases(
        options,
        min(4, arguments.batch_size) if options.is_quick else arguments.batch_size,
        arguments.methods,
        arguments.match,
    )
    return run("compare_transformers", options, cases)


if __name__ == "__main__":
    sys.exit(main())
