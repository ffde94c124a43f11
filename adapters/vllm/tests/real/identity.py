"""The real engine: texts with every method are those of vLLM alone, token for token.

    PYTHON_OF_VLLM adapters/vllm/tests/real/identity.py [--runner v1] [--model DIR] [--methods JSON ...] [--keep FILE]

One process asks vLLM without speculation, greedily and with seeds at temperature 0.8; a second one asks the same with our
configuration, one method after the other in one engine. Exits with 1 if a text differs, or the engine ends. vLLM's V2 model
runner runs in Triton's interpreter, with asynchronous scheduling; V1 is what vLLM takes without it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[2] / "hosting/tests/real"
sys.path.insert(0, str(SHARED))

from tried import (  # noqa: E402
    HOSTILE,
    Tried,
    add_shared,
    by_short_name,
    in_two_processes,
    keep,
    name_of,
    of_readme,
    shown,
    target_of,
)

ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    # On a machine that does other things as well, spinning threads wait for each other most of the time.
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
V2 = {
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "TORCHDYNAMO_DISABLE": "1",  # it would compile for the stand-in
    "PYTHONPATH": os.pathsep.join((str(HERE), str(HERE / "interpreter"))),
}
V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0", "PYTHONPATH": str(HERE)}
TEMPERATURES = (0.0, 0.8)
PARAMETERS: tuple[dict[str, Any], ...] = ({}, {"top_k": 8}, {"repetition_penalty": 1.2}, {"logprobs": 2})
"""One after the other of these goes with each prompt."""


def zoo_methods(runner: str) -> list[dict[str, Any]]:
    """Return what the zoo's target can be tried with."""
    methods: list[dict[str, Any]] = [{"method": "ngram"}, {"method": "suffix"}]
    methods += [{"method": m, "model": "zoo"} for m in ("draft_model", "eagle", "eagle3", "mtp")]
    if runner == "v1":
        methods += [method | {"adaptive": True} for method in methods]
    else:
        members = [{"method": "suffix"}, {"method": "ngram"}]
        methods += [
            {"method": "ngram_gpu"},
            {"method": "recycling"},
            {"method": "composite", "proposers": members},
        ]
    return [*methods, of_readme(), HOSTILE]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add_shared(parser, num_prompts=6)
    parser.add_argument("--runner", choices=("v1", "v2"), default="v2")
    parser.add_argument("--no-async-scheduling", action="store_true", help="drafts are then not late")
    parser.add_argument("--greedy", action="store_true", help="at temperature 0 alone")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--dtype", default="float32")
    return parser.parse_args()


def make_engine(arguments: argparse.Namespace, **keys: Any) -> Any:
    import v2_on_cpu
    from vllm import LLM

    if arguments.runner == "v2":
        v2_on_cpu.prepare()
    return LLM(
        arguments.model,
        dtype=arguments.dtype,
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=8,
        enable_prefix_caching=False,
        tensor_parallel_size=arguments.tensor_parallel,
        async_scheduling=False if arguments.no_async_scheduling else None,
        **keys,
    )


def ask(engine: Any, arguments: argparse.Namespace, temperature: float) -> list[list[int]]:
    """Return the tokens of every prompt, the first ones twice: batches change while they run."""
    from vllm import SamplingParams

    import specdec_zoo

    prompts = [prompt["prompt"] for prompt in specdec_zoo.prompts(arguments.num_prompts)]
    params = [
        SamplingParams(
            temperature=temperature,
            seed=100 + i,
            max_tokens=arguments.max_tokens - 7 * (i % 3),
            ignore_eos=True,
            **PARAMETERS[i % len(PARAMETERS)],
        )
        for i in range(len(prompts))
    ]
    outputs = engine.generate(prompts, params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def write_reference(arguments: argparse.Namespace) -> None:
    engine = make_engine(arguments)
    temperatures = TEMPERATURES[:1] if arguments.greedy else TEMPERATURES
    arguments.texts.write_text(json.dumps([ask(engine, arguments, t) for t in temperatures]))


def compare(arguments: argparse.Namespace) -> int:
    """Try every method; returns how many texts differ, and how often the host waited where it need not."""
    import waits

    expected = json.loads(arguments.texts.read_text())
    methods = arguments.methods or zoo_methods(arguments.runner)
    engine = make_engine(
        arguments,
        speculative_config={
            "method": "ngram_gpu",
            "num_speculative_tokens": arguments.num_speculative_tokens,
        },
        additional_config={"specdec": methods[0]},
    )
    is_async = engine.llm_engine.vllm_config.scheduler_config.async_scheduling
    print(f"asynchronous scheduling: {is_async}")
    num_wrong = int(is_async != (arguments.runner == "v2" and not arguments.no_async_scheduling))
    kept = []
    for method in methods:
        engine.collective_rpc("open_specdec", args=(method,))
        num_equal = num_texts = 0
        is_counted = arguments.runner == "v2" and arguments.tensor_parallel == 1
        when = engine.collective_rpc(waits.count)[0] if is_counted else ""
        for temperature, texts in zip(TEMPERATURES, expected, strict=False):
            started = time.perf_counter()
            got = ask(engine, arguments, temperature)
            same = sum(a == b for a, b in zip(got, texts, strict=True))
            num_equal, num_texts = num_equal + same, num_texts + len(texts)
            seconds = time.perf_counter() - started
            print(
                f"{json.dumps(method)} at {temperature}: {same} of {len(texts)} texts equal, {seconds:.1f} s"
            )
        if is_counted:
            found = engine.collective_rpc(waits.counted)[0]
            print(f"    asked {when}, host waits on the device: {found or 'none'}")
            num_wrong += sum(found.values()) if when != "in_time" else 0
        counters = by_short_name(engine.collective_rpc("specdec_counters")[0])
        print("   ", shown(counters), flush=True)
        num_wrong += num_texts - num_equal + counters["adapter_failures"]
        kept.append(row_of(arguments, method, when, num_equal, num_texts, counters))
    if arguments.keep is not None:
        keep(arguments.keep, kept)
    return num_wrong


def row_of(
    arguments: argparse.Namespace,
    method: dict[str, Any],
    when: str,
    num_equal: int,
    num_texts: int,
    counters: dict[str, Any],
) -> Tried:
    """Return what is kept of a method."""
    import vllm

    numbers = (counters[f"num_{name}"] for name in ("drafts", "draft_tokens", "accepted_tokens"))
    return Tried(
        f"vLLM {arguments.runner.upper()}",
        target_of(arguments.model),
        name_of(method),
        when or "in_time",
        "chain",
        method.get("rejection_sample_method", "strict"),
        vllm.__version__,
        ", ".join(map(str, TEMPERATURES[: 1 if arguments.greedy else 2])),
        num_equal,
        num_texts,
        *numbers,
    )


def main() -> int:
    arguments = read_arguments()
    if arguments.model is None:
        import specdec_zoo

        arguments.model = str(specdec_zoo.path("target"))
    if arguments.role == "reference":
        write_reference(arguments)
        return 0
    if arguments.role == "adapter":
        return 1 if compare(arguments) else 0
    environment = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0" if arguments.tensor_parallel == 1 else "1"}
    environment |= {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"} | (V1 if arguments.runner == "v1" else V2)
    environment |= {name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}
    return in_two_processes(environment)


if __name__ == "__main__":
    sys.exit(main())
