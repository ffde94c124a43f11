"""`specdec generate`: streams text generated from a prompt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from specdec import ConfigError, hookimpl
from specdec_cli import hint, print_json, warn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdec import RequestOutput
    from specdec.frontend import Prompt


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec generate`."""
    app.command("generate")(generate)


def generate(
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The prompt.", show_default=False)
    ] = None,
    prompt: Annotated[str | None, typer.Option(metavar="TEXT", help="The same.")] = None,
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
    tensor_parallel_size: Annotated[
        int, typer.Option(min=1, help="Processes that share the model, one device each.")
    ] = 1,
    highlight: Annotated[
        bool, typer.Option("--highlight", help="Colour the tokens that a draft had guessed (on a terminal).")
    ] = False,
    chat: Annotated[
        bool, typer.Option("--chat", help="Ask the prompt as a message, through the model's chat template.")
    ] = False,
    stats: Annotated[
        bool,
        typer.Option(
            "--stats", help="What the run did, on the standard error stream; a terminal always has it."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end instead of text.")
    ] = False,
) -> None:
    """Generate text from a prompt."""
    text = _read_prompt(text, prompt, prompt_file)

    from specdec.config import PACKAGED, ZOO, check_first, check_name
    from specdec_cli import quiet_libraries

    check_name(model, "--model", speculative_config)  # before torch is imported
    check_first(speculative_config)
    if text in (ZOO, *PACKAGED):
        hint(f"{text!r} is the prompt; the model is --model {text}")

    from specdec_cli import loading

    with loading(model):
        from specdec import LLM, SamplingParams
        from specdec.frontend import no_drafts_warning
        from specdec_cli.text import run_summary
        from specdec_cli.text.show_stream import show_stream

        params = SamplingParams(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            seed=seed,
            stop=stop or None,
        )
        quiet_libraries()
        llm = LLM(
            model,
            speculative_config=speculative_config,
            dtype=dtype,
            max_model_len=max_model_len,
            max_num_seqs=1,
            tensor_parallel_size=tensor_parallel_size,
        )
    tokenizer = llm.get_tokenizer()
    outputs = llm.stream(_prompt(text, tokenizer, is_chat=chat), params)
    if as_json:
        *_, output = outputs
        print_json(run_summary.as_json(output, llm.sampler))
    else:
        output = show_stream(outputs, tokenizer, is_coloured=highlight)
        if output.outputs[0].text:
            print()
    _tell(output, tokenizer, is_chat=chat)
    if stats or (sys.stderr.isatty() and not as_json):
        num_tokens = len(output.outputs[0].token_ids)
        print(run_summary.summary(num_tokens, output.metrics, llm.sampler), file=sys.stderr)
    warning = no_drafts_warning(llm.method, llm.get_metrics())
    if warning is not None:
        warn(warning)


def _read_prompt(text: str | None, option: str | None, file: Path | None) -> str:
    if sum(given is not None for given in (text, option, file)) != 1:
        raise ConfigError("give one prompt: as TEXT, --prompt or --prompt-file")
    prompt = option if text is None else text
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


def _prompt(text: str, tokenizer: PreTrainedTokenizerBase, *, is_chat: bool) -> Prompt:
    """Return the prompt, formatted as a chat message if `is_chat`."""
    if is_chat:
        from specdec_cli.chat_prompt import chat_prompt

        return cast("Prompt", chat_prompt(tokenizer, [{"role": "user", "content": text}]))
    return text


def _tell(output: RequestOutput, tokenizer: PreTrainedTokenizerBase, *, is_chat: bool) -> None:
    """Warn if the output is empty; suggest `--chat` if a model with a chat template ended a plain prompt."""
    completion, prompt = output.outputs[0], output.prompt or ""
    is_ended = completion.finish_reason == "stop" and completion.stop_reason is None
    if is_ended and not completion.text.strip():
        warn("the model generated no text: the first token it chose ends it")
    has_been_written = any(token and token in prompt for token in tokenizer.all_special_tokens)
    if is_ended and tokenizer.chat_template and not is_chat and not has_been_written:
        hint(
            "the model has a chat template: if it was trained on conversations, --chat asks the prompt as a message"
        )
