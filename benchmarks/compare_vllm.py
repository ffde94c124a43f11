"""Compare specdec with vLLM on the CPU: same model, same prompts, same tokens, interleaved in one run.

    sh benchmarks/peers/make_vllm_env.sh benchmarks/.peers/vllm
    python benchmarks/compare_vllm.py --vllm-python benchmarks/.peers/vllm/bin/python [--quick]

Measures no speculation, and prompt lookup, a draft model, suffix trees or an EAGLE-3 head (`--methods`) with the same k
and settings, at batch 1 and 8, greedy, prefix caching off. `match=first` drafts what vLLM drafts; `match=recent` is
specdec's default. vLLM runs compiled unless `--vllm-modes` says otherwise: compilation takes most of a minute at every
start and makes vLLM faster. If both modes are given, both are measured; quote the faster one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from common.case import Case
from common.options import Options, make_parser, read_options
from common.run import read_prompts, run
from common.speculation import METHODS, Speculation, speculations
from common.variants import VLLM_ENVIRONMENT, VLLM_MODES, ours, vllm, vllm_home


def make_cases(
    options: Options, batch_sizes: list[int], modes: list[str], found: list[Speculation], has_statistics: bool
) -> list[Case]:
    """Return the cases for every dtype and batch size."""
    prompts = read_prompts(options, max(options.num_prompts, *batch_sizes))
    cases = []
    for dtype in options.dtypes:
        pairs = [(ours(dtype), vllm(dtype, mode=mode)) for mode in modes]
        pairs += [
            (ours(dtype, speculation), vllm(dtype, speculation, mode, has_statistics))
            for mode in modes
            for speculation in found
        ]
        cases += [Case(dtype, size, prompts, tuple(pairs)) for size in batch_sizes]
    return cases


def main() -> int:
    """Run the comparison."""
    parser = make_parser("specdec against vLLM on the CPU", num_prompts=8, k=[4])
    add = parser.add_argument
    add("--vllm-python", type=Path, required=True, help="interpreter of the environment vLLM is in")
    add("--vllm-modes", nargs="+", choices=sorted(VLLM_MODES), default=["compiled"], help="default: compiled")
    add(
        "--vllm-preload",
        help="value of LD_PRELOAD for vLLM, '' for none (default: Intel's OpenMP, where its environment has it)",
    )
    add(
        "--vllm-stats",
        action="store_true",
        help="let vLLM count its drafts, for comparing them (costs it some time)",
    )
    add("--batch-sizes", type=int, nargs="+", default=[1, 8], help="default: 1 8")
    add("--methods", nargs="+", choices=METHODS, default=["ngram"], help="default: ngram")
    add("--match", nargs="+", default=["first", "recent"], help="default: first recent")
    arguments = parser.parse_args()
    options = read_options(arguments)
    home = vllm_home(arguments.vllm_python, arguments.vllm_preload)
    modes = ["eager"] if options.is_quick and arguments.vllm_modes == ["compiled"] else arguments.vllm_modes
    found = list(speculations(options, arguments.methods, arguments.match))
    cases = make_cases(options, arguments.batch_sizes, modes, found, arguments.vllm_stats)
    preload = Path(home.environment.get("LD_PRELOAD", "")).name
    settings = {"vllm_environment": dict(VLLM_ENVIRONMENT), "vllm_preload": preload}
    return run("compare_vllm", options, cases, {"vllm": home}, settings)


if __name__ == "__main__":
    sys.exit(main())
