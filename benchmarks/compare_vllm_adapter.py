"""Compare specdec's proposers in vLLM with vLLM's own methods: same engine, same prompts, same tokens, interleaved in one run.

    sh benchmarks/peers/make_vllm_env.sh benchmarks/.peers/vllm
    (cd benchmarks/.peers/vllm && bin/pip install --no-deps -e ../../../core -e ../../../plugins/ngram ...)
    python benchmarks/compare_vllm_adapter.py --vllm-python benchmarks/.peers/vllm/bin/python [--quick]

adapters/vllm/README.md lists what to install there. Both sides run every method with the same k and settings. specdec's
proposers also run with `adaptive`, which vLLM lacks. vLLM also runs without speculation. Greedy, prefix caching off.
"""

from __future__ import annotations

import sys
from pathlib import Path

from common.case import Case
from common.options import Options, make_parser, read_options
from common.run import read_prompts, run
from common.speculation import METHODS, Speculation, speculations
from common.variants import VLLM_ENVIRONMENT, VLLM_MODES, adapted, vllm, vllm_home


def make_cases(
    options: Options, batch_sizes: list[int], mode: str, found: list[Speculation], has_statistics: bool
) -> list[Case]:
    """Return the cases for every dtype and batch size: specdec's proposer in vLLM against vLLM's own and against none."""
    prompts = read_prompts(options, max(options.num_prompts, *batch_sizes))
    cases = []
    for dtype in options.dtypes:
        pairs = []
        for speculation in found:
            peers = vllm(dtype, speculation, mode, has_statistics), vllm(dtype, mode=mode)
            for is_adaptive in (False, True):
                ours = adapted(dtype, speculation, mode, has_statistics, is_adaptive=is_adaptive)
                pairs += [(ours, peer) for peer in peers]
        cases += [Case(dtype, size, prompts, tuple(pairs)) for size in batch_sizes]
    return cases


def main() -> int:
    """Run the comparison."""
    parser = make_parser("specdec in vLLM against vLLM's own methods on the CPU", num_prompts=8, k=[5])
    add = parser.add_argument
    add("--vllm-python", type=Path, required=True, help="interpreter of the environment vLLM is in")
    add("--vllm-mode", choices=sorted(VLLM_MODES), help="default: compiled; with --quick eager")
    add(
        "--vllm-preload",
        help="value of LD_PRELOAD for vLLM, '' for none (default: Intel's OpenMP, where its environment has it)",
    )
    add("--vllm-stats", action="store_true", help="let vLLM count its drafts (costs it some time)")
    add("--batch-sizes", type=int, nargs="+", default=[1, 8], help="default: 1 8")
    add(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=["ngram", "suffix"],
        help="default: ngram suffix",
    )
    add("--match", nargs="+", default=["recent"], help="default: recent; first drafts what vLLM drafts")
    arguments = parser.parse_args()
    options = read_options(arguments)
    home = vllm_home(arguments.vllm_python, arguments.vllm_preload)
    mode = arguments.vllm_mode or ("eager" if options.is_quick else "compiled")
    found = list(speculations(options, arguments.methods, arguments.match))
    cases = make_cases(options, arguments.batch_sizes, mode, found, arguments.vllm_stats)
    preload = Path(home.environment.get("LD_PRELOAD", "")).name
    settings = {"vllm_environment": dict(VLLM_ENVIRONMENT), "vllm_preload": preload}
    return run("compare_vllm_adapter", options, cases, {"vllm": home}, settings)


if __name__ == "__main__":
    sys.exit(main())
