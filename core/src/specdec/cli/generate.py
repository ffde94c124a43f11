"""`specdec generate`: text from a prompt, as it is made."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec import hookimpl
from specdec.cli.output import print_json
from specdec.errors import ConfigError

if TYPE_CHECKING:
    from specdec.interfaces import Sampler
    from specdec.llm import LLM
    from specdec.outputs import RequestOutput
    from specdec.sampling_params import SamplingParams


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec generate`."""
    app.command("generate")(generate)


def generate(
    prompt: Annotated[str | None, typer.Option(metavar="TEXT", help="The prompt.")] = None,
    prompt_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the prompt; - for the standard input.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="Target: a directory, a hub id, a GGUF file, smollm2, or zoo.")
    ] = "zoo",
    speculative_config: Annotated[
        str | None, typer.Option(metavar="JSON|FILE", help="How to speculate; default: not at all.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="The most tokens to generate.")] = 128,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.8,
    top_p: Annotated[float, typer.Option(help="Keep the likeliest tokens of this total probability.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Keep this many of the likeliest tokens; 0 for all.")] = 0,
    min_p: Annotated[float, typer.Option(help="Drop tokens below this share of the likeliest one.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="Text that ends the output; may be repeated.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16, ...")] = "auto",
    max_model_len: Annotated[
        int | None, typer.Option(min=2, help="Longest context; default: the model's.")
    ] = None,
    highlight: Annotated[
        bool, typer.Option("--highlight", help="Colour the tokens that a draft had guessed (on a terminal).")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end instead of text.")
    ] = False,
) -> None:
    """Generate text from a prompt."""
    text = _read_prompt(prompt, prompt_file)

    from specdec.cli.quiet import hush_libraries
    from specdec.config.model_name import check_name

    check_name(model, "--model")  # before torch is imported

    from specdec.llm import LLM
    from specdec.sampling_params import SamplingParams

    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        stop=stop or None,
    )
    hush_libraries()
    llm = LLM(
        model,
        speculative_config=speculative_config,
        dtype=dtype,
        max_model_len=max_model_len,
        max_num_seqs=1,
    )
    output = _stream(llm, text, params, is_shown=not as_json, is_coloured=highlight)
    if as_json:
        print_json(_as_json(output, llm.sampler))
    elif sys.stderr.isatty():
        print(_summary(output, llm.sampler), file=sys.stderr)


def _read_prompt(prompt: str | None, file: Path | None) -> str:
    if (prompt is None) == (file is None):
        raise ConfigError("give one of --prompt and --prompt-file")
    if prompt is None:
        assert file is not None
        try:
            prompt = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--prompt-file: cannot read {str(file)!r}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"--prompt-file: {file} is not UTF-8 text: {error.reason}") from None
    if not prompt:
        raise ConfigError("the prompt is empty")
    return prompt


def _stream(
    llm: LLM, prompt: str, params: SamplingParams, *, is_shown: bool, is_coloured: bool
) -> RequestOutput:
    """Generate, writing text as it comes if it is to be shown; return the finished output."""
    from specdec.cli.highlight import GrowingText, paint, takes_colour

    is_coloured = is_coloured and takes_colour()
    growing: GrowingText | None = None
    last: RequestOutput | None = None
    for last in llm.stream(prompt, params):
        if not is_shown:
            continue
        if growing is None:
            growing = GrowingText(llm.get_tokenizer(), last.prompt_token_ids)
        for piece in growing.update(last.outputs[0]):
            sys.stdout.write(paint(piece, is_coloured=is_coloured))
        sys.stdout.flush()
    assert last is not None
    if is_shown:
        print()
    return last


def _as_json(output: RequestOutput, sampler: type[Sampler]) -> dict[str, Any]:
    completion, metrics = output.outputs[0], output.metrics
    return {
        "prompt": output.prompt,
        "text": completion.text,
        "token_ids": completion.token_ids,
        "is_from_draft": completion.is_from_draft,
        "finish_reason": completion.finish_reason,
        "stop_reason": completion.stop_reason,
        "sampler": sampler.name,
        "is_lossless": sampler.is_lossless,
        "metrics": {
            **asdict(metrics),
            "mean_acceptance_length": metrics.mean_acceptance_length,
            "acceptance_rate": metrics.acceptance_rate,
        },
    }


def _summary(output: RequestOutput, sampler: type[Sampler]) -> str:
    metrics, count = output.metrics, len(output.outputs[0].token_ids)
    line = f"{count} tokens in {metrics.total_time:.2f} s, {count / metrics.total_time:.0f} tokens/s"
    if metrics.num_drafts:
        line += (
            f"; {metrics.num_accepted_tokens} of {metrics.num_draft_tokens} drafted tokens accepted, "
            f"mean acceptance length {metrics.mean_acceptance_length:.2f}"
        )
    return line if sampler.is_lossless else f"{line}; {sampler.name} is lossy"
