"""Compare specdec with `generate` of transformers: same model, same prompts, same tokens, interleaved.

    python benchmarks/compare_transformers.py            # minutes to an hour, on a quiet machine
    python benchmarks/compare_transformers.py --quick    # a smoke run

Without speculation: one prompt at a time, and a batch of prompts of different lengths, padded on the left
by transformers. With prompt lookup: one prompt at a time, because transformers refuses batches there.
Greedy; both sides run past end-of-text tokens.
"""

from __future__ import annotations

import sys

from common.case import Case
from common.ngram import specdec_ngram, specdec_plain
from common.options import Options, make_parser, read_options
from common.run import read_prompts, run
from common.variant import Variant


def lookup(options: Options, dtype: str, k: int) -> Variant:
    """Prompt lookup of transformers."""
    settings: dict[str, object] = {
        "prompt_lookup_num_tokens": k,
        "max_matching_ngram_size": options.lookup_max,
    }
    return Variant.make("transformers", f"lookup k={k}", dtype, settings)


def make_cases(options: Options, batch_size: int, matches: list[str]) -> list[Case]:
    """Return the cases of every dtype."""
    alone = read_prompts(options, options.num_prompts)
    together = read_prompts(options, batch_size)
    cases = []
    for dtype in options.dtypes:
        plain = (specdec_plain(dtype), Variant.make("transformers", "none", dtype))
        speculating = [
            (specdec_ngram(options, dtype, k, match), lookup(options, dtype, k))
            for k in options.k
            for match in matches
        ]
        cases.append(Case(dtype, 1, alone, (plain, *speculating)))
        cases.append(Case(dtype, batch_size, together, (plain,)))
    return cases


def main() -> int:
    """Run the comparison."""
    parser = make_parser("specdec against transformers generate", num_prompts=6, k=[4, 10])
    parser.add_argument("--batch-size", type=int, default=16, help="prompts of the batch (default 16)")
    parser.add_argument("--match", nargs="+", default=["recent"], help="recent (default), first, or both")
    arguments = parser.parse_args()
    options = read_options(arguments)
    cases = make_cases(options, 4 if options.is_quick else arguments.batch_size, arguments.match)
    return run("compare_transformers", options, cases)


if __name__ == "__main__":
    sys.exit(main())
