"""`specdec warmup`: compiles in advance what the first start would compile."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated, Any

import typer

from specdec import ConfigError, hookimpl
from specdec.config import ZOO
from specdec.folders import compiled_folder
from specdec_cli import default_configs, progress

DTYPES = ("float32", "bfloat16")
PROMPTS = ([5, 6, 7, 5, 6, 7, 5, 6], [9, 8, 7])


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec warmup`."""
    app.command("warmup")(warmup)


def warmup(
    model: Annotated[
        str, typer.Option(help="Target: a directory, a hub id, a GGUF file, smollm2, or zoo.")
    ] = ZOO,
    speculative_config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JSON|FILE",
            help="A configuration to run; any number of them. Default: auto, and every method that needs no model.",
        ),
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help=f"May be repeated; default: {' and '.join(DTYPES)}.")
    ] = None,
) -> None:
    """Compile for this machine what the first start would compile.

    A few tokens are generated in each dtype, without drafts and with each configuration. What is compiled is kept, for every
    model; later runs find it there.
    """
    from specdec.config import check_first, check_name
    from specdec_cli import quiet_libraries

    check_name(model, "--model")  # before torch is imported
    configs: list[Any] = [None, *(speculative_config or default_configs())]
    for config in configs:
        check_first(config)

    from specdec import EngineOptions
    from specdec.config import parse_speculative_config
    from specdec_kernels.cpu.compiled.cache import check_folder, not_kept
    from specdec_runtime.loading import load_target

    for config in configs:
        parse_speculative_config(config)
    try:
        check_folder()
    except OSError as error:
        raise ConfigError(not_kept(error)) from None
    quiet_libraries()
    dtypes = dtype or list(DTYPES)
    started, before = perf_counter(), _num_kept()
    with progress("compiling what is not there yet", len(dtypes) * len(configs)) as steps:
        for name in dtypes:
            target = load_target(EngineOptions(model=model, dtype=name))
            for config in configs:
                _generate(target, config)
                steps.advance()
    num_new, seconds = _num_kept() - before, perf_counter() - started
    done = f"{num_new} functions compiled" if num_new else "nothing was left to compile"
    print(f"{done}, {seconds:.0f} s; compiled code is kept in {compiled_folder()}")


def _generate(target: Any, config: Any) -> None:
    """Generate a few tokens, greedy and sampled, alone and in a batch."""
    from specdec import LLM, SamplingParams

    llm = LLM(target, speculative_config=config, max_num_seqs=2, max_model_len=min(256, target.max_model_len))
    for temperature in (0.0, 0.8):
        params = SamplingParams(temperature=temperature, seed=1, max_tokens=8, ignore_eos=True)
        for prompts in (PROMPTS[:1], PROMPTS):
            llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params)
    llm.shutdown()


def _num_kept() -> int:
    """Return how many compiled functions numba has cached, counting each combination of types."""
    return sum(1 for _ in compiled_folder().glob("*/*.nbc"))
