"""Compare specdec with llama.cpp through llama-cpp-python: same prompts, same k, interleaved in one run.

    sh benchmarks/peers/make_llama_cpp_env.sh benchmarks/.peers/llama_cpp
    python benchmarks/compare_llama_cpp.py --llama-cpp-python benchmarks/.peers/llama_cpp/bin/python [--quick]

Measures no speculation and prompt lookup, one prompt at a time, greedy, ignoring end-of-text tokens. In float32 both
sides have the same weights, and tokens must be equal. In bfloat16 llama.cpp runs the same weights as we do (`--stored`:
BF16, F16) and the file as shipped (`shipped`), whose weights have fewer bits and which we round to bfloat16; there
equal tokens are only counted. llama.cpp drafts the continuation of the first occurrence, like our `match=first`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from common.case import Case
from common.gguf_file import stored_as, stored_in
from common.model import gguf_of
from common.options import Options, make_parser, read_options
from common.run import read_prompts, run
from common.speculation import Speculation, speculations
from common.variant import Variant
from common.variants import llama_cpp, llama_cpp_home, ours

SHIPPED = "shipped"
STORED = ("BF16", "F16", SHIPPED)


def files(options: Options, dtype: str, stored: Sequence[str]) -> list[tuple[Path, str, bool]]:
    """Return the GGUF files of a dtype, the type of their weights, and whether they are as shipped."""
    shipped = gguf_of(options.model)
    if dtype == "float32":
        return [(stored_as(shipped, "F32"), "F32", False)]
    return [
        (shipped, stored_in(shipped), True) if kind == SHIPPED else (stored_as(shipped, kind), kind, False)
        for kind in stored
    ]


def pairs(
    options: Options, dtype: str, stored: Sequence[str], found: Sequence[Speculation]
) -> list[tuple[Variant, Variant]]:
    """Return our variant and llama.cpp's for every file, without a method and with each."""
    made = []
    for file, name, is_as_shipped in files(options, dtype, stored):
        for method in (None, *found):
            made.append(
                (ours(dtype, method), llama_cpp(dtype, file, name, method, is_as_shipped=is_as_shipped))
            )
    return made


def main() -> int:
    """Run the comparison."""
    parser = make_parser("specdec against llama.cpp", num_prompts=6, k=[4])
    parser.set_defaults(model="smollm2")
    add = parser.add_argument
    add(
        "--llama-cpp-python",
        type=Path,
        required=True,
        help="interpreter of the environment llama-cpp-python is in",
    )
    add(
        "--stored",
        nargs="+",
        choices=STORED,
        default=["BF16", SHIPPED],
        help="default: BF16 shipped",
    )
    add("--match", nargs="+", default=["first"], help="first (default), recent, or both")
    arguments = parser.parse_args()
    options = read_options(arguments)
    prompts = read_prompts(options, options.num_prompts)
    found = list(speculations(options, ["ngram"], arguments.match))
    cases = [
        Case(dtype, 1, prompts, tuple(pairs(options, dtype, arguments.stored, found)))
        for dtype in options.dtypes
    ]
    return run("compare_llama_cpp", options, cases, {"llama_cpp": llama_cpp_home(arguments.llama_cpp_python)})


if __name__ == "__main__":
    sys.exit(main())
