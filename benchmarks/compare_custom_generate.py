"""Compare specdec inside `generate` with transformers' own speculation: one model, one call, the same drafts, interleaved.

    python benchmarks/compare_custom_generate.py                     # prompt lookup and assisted generation, on a quiet machine
    python benchmarks/compare_custom_generate.py --quick             # a smoke run
    python benchmarks/compare_custom_generate.py --model smollm2 --dtypes bfloat16 --methods ngram

Both sides call `model.generate` with the same prompts, one at a time, since transformers does not support batches with
speculation. transformers uses `prompt_lookup_num_tokens` or `assistant_model`; specdec uses
`custom_generate=specdec_transformers.generate` with the same method, k and draft. Greedy; both ignore end-of-text tokens.
"""

from __future__ import annotations

import sys

from common.case import Case
from common.options import Options, make_parser, read_options
from common.run import read_prompts, run
from common.speculation import speculations
from common.variants import inside_transformers, transformers

METHODS = ("ngram", "draft_model")
"""Methods that transformers also has."""


def make_cases(options: Options, methods: list[str], matches: list[str]) -> list[Case]:
    """Return one case per dtype."""
    prompts = read_prompts(options, options.num_prompts)
    found = list(speculations(options, methods, matches))
    return [
        Case(
            dtype,
            1,
            prompts,
            tuple(
                (inside_transformers(dtype, speculation), transformers(dtype, speculation))
                for speculation in (None, *found)
            ),
        )
        for dtype in options.dtypes
    ]


def main() -> int:
    """Run the comparison."""
    parser = make_parser(
        "specdec inside generate against transformers' own speculation", num_prompts=6, k=[4]
    )
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=list(METHODS), help="default: %(default)s"
    )
    parser.add_argument("--match", nargs="+", default=["recent"], help="recent (default), first, or both")
    arguments = parser.parse_args()
    options = read_options(arguments)
    return run("compare_custom_generate", options, make_cases(options, arguments.methods, arguments.match))


if __name__ == "__main__":
    sys.exit(main())
