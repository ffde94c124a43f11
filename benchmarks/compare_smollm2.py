"""Compare SmolLM2 in specdec, transformers, vLLM and llama.cpp: same weights, prompts and k, interleaved in one run.

    sh benchmarks/compare_smollm2.sh                                   # all engines; makes their environments
    python benchmarks/compare_smollm2.py --methods ngram suffix        # only those whose interpreters are named

At batch 1: no method and each method (`--methods`), against every engine that has it; llama.cpp with the same weights
and with its 4-bit file. At batch 8 only against vLLM, since the others run speculation on one prompt at a time. Our
variants are measured once and compared with each peer. Without `--json` the result is `results/compare_smollm2.json`,
or `results/compare_smollm2_float32.json` for a run in float32 alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import compare_llama_cpp
from common.case import Case
from common.options import Options, make_parser, read_options
from common.pool import EngineHome
from common.run import read_prompts, run
from common.speculation import METHODS, Speculation, speculations
from common.variant import Variant
from common.variants import VLLM_MODES, llama_cpp_home, ours, transformers, vllm, vllm_home


def make_cases(
    options: Options,
    engines: Sequence[str],
    found: Sequence[Speculation],
    batch_size: int,
    mode: str,
    stored: Sequence[str],
) -> list[Case]:
    """Return for every dtype a case at batch 1 and, if vLLM is available, a batched case.

    Args:
        options: the shared options.
        engines: the available peers.
        found: the methods.
        batch_size: of the batched case; 1 for none.
        mode: vLLM's.
        stored: types of llama.cpp's weights, below float32.
    """
    prompts = read_prompts(options, max(options.num_prompts, batch_size))
    cases = []
    for dtype in options.dtypes:
        pairs = _pairs(dtype, engines, found, mode)
        if "llama_cpp" in engines:
            pairs += compare_llama_cpp.pairs(options, dtype, stored, _with_prompt_lookup(found))
            pairs += _best_of_ours(pairs, dtype, found)
        cases.append(Case(dtype, 1, prompts[: options.num_prompts], tuple(pairs)))
        if "vllm" in engines and batch_size > 1:
            cases.append(Case(dtype, batch_size, prompts, tuple(_pairs(dtype, ["vllm"], found, mode))))
    return cases


def _pairs(
    dtype: str, engines: Sequence[str], found: Sequence[Speculation], mode: str
) -> list[tuple[Variant, Variant]]:
    """Return pairs of our methods with our own plain decoding, transformers and vLLM."""
    pairs = [(ours(dtype, method), ours(dtype)) for method in found]
    for method in (None, *found):
        if "transformers" in engines and (method is None or method.transformers is not None):
            pairs.append((ours(dtype, method), transformers(dtype, method)))
        if "vllm" in engines:
            pairs.append((ours(dtype, method), vllm(dtype, method, mode)))
    return pairs


def _with_prompt_lookup(found: Sequence[Speculation]) -> list[Speculation]:
    return [method for method in found if method.llama_cpp is not None]


def _best_of_ours(
    pairs: Sequence[tuple[Variant, Variant]], dtype: str, found: Sequence[Speculation]
) -> Iterator[tuple[Variant, Variant]]:
    """Return each of our methods paired with llama.cpp without speculation, the comparison for choosing an engine."""
    plain = dict.fromkeys(
        peer for _, peer in pairs if peer.engine == "llama_cpp" and "prompt_lookup" not in peer.settings
    )
    return ((ours(dtype, method), peer) for peer in plain for method in found)


def _homes(arguments: argparse.Namespace) -> dict[str, EngineHome]:
    """Return the environments of the peers whose interpreters are given."""
    homes = {}
    if arguments.vllm_python is not None:
        homes["vllm"] = vllm_home(arguments.vllm_python)
    if arguments.llama_cpp_python is not None:
        homes["llama_cpp"] = llama_cpp_home(arguments.llama_cpp_python)
    return homes


def main() -> int:
    """Run the comparison."""
    parser = make_parser("specdec, transformers, vLLM and llama.cpp on SmolLM2", num_prompts=4, k=[4])
    parser.set_defaults(model="smollm2", dtypes=["bfloat16"], rounds=6, max_tokens=48)
    add = parser.add_argument
    add("--vllm-python", type=Path, help="interpreter of the environment vLLM is in (default: without vLLM)")
    add(
        "--vllm-mode",
        choices=sorted(VLLM_MODES),
        default="compiled",
        help="default: compiled; eager with --quick",
    )
    add(
        "--llama-cpp-python",
        type=Path,
        help="interpreter of the environment llama-cpp-python is in (default: without llama.cpp)",
    )
    add(
        "--stored",
        nargs="+",
        choices=compare_llama_cpp.STORED,
        default=["BF16", compare_llama_cpp.SHIPPED],
        help="what llama.cpp's weights are stored as (default: BF16 shipped; F32 in float32)",
    )
    add("--batch-size", type=int, default=8, help="of the batch beside vLLM; 1: none (default 8)")
    add(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=["ngram", "suffix", "eagle3"],
        help="default: %(default)s",
    )
    add(
        "--match",
        nargs="+",
        default=["first"],
        help="n-grams: first (default), as the peers do; recent; or both",
    )
    arguments = parser.parse_args()
    options = read_options(arguments)
    homes = _homes(arguments)
    found = list(speculations(options, arguments.methods, arguments.match))
    cases = make_cases(
        options,
        ["transformers", *homes],
        found,
        min(2, arguments.batch_size) if options.is_quick else arguments.batch_size,
        "eager" if options.is_quick else arguments.vllm_mode,
        arguments.stored,
    )
    name = "compare_smollm2_float32" if options.dtypes == ("float32",) else "compare_smollm2"
    preload = Path(homes["vllm"].environment.get("LD_PRELOAD", "")).name if "vllm" in homes else ""
    return run(name, options, cases, homes, {"methods": arguments.methods, "vllm_preload": preload})


if __name__ == "__main__":
    sys.exit(main())
