"""`specdec chat`: a conversation with a model, with accepted drafts in colour."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from specdec import ConfigError, hookimpl
from specdec_cli import default_configs, error, warn
from specdec_cli.default_model import choose_model

if TYPE_CHECKING:
    from specdec_cli.text.conversation import Conversation

HELP = (
    "/stats  what drafts did for the last answer and for all",
    "/off    no drafts from now on; /on drafts again",
    "/new    begin a new conversation",
    "/quit   end, as Ctrl-D does; Ctrl-C ends an answer",
)


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec chat`."""
    app.command("chat")(chat)


def chat(
    name: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="The same as --model.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Target: a directory, a hub id, a GGUF file, smollm2 or zoo; default: smollm2 where its package is "
            "installed, else zoo."
        ),
    ] = None,
    speculative_config: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|FILE",
            help="How to speculate; default: auto, or an installed method that needs no model.",
        ),
    ] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="What the model is told first.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="The most tokens of an answer.")] = 512,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same answers.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16, ...")] = "auto",
    max_model_len: Annotated[
        int | None, typer.Option(min=2, help="Longest conversation, in tokens; default: the model's.")
    ] = None,
) -> None:
    """Talk to a model. Tokens that a draft had guessed are in colour; /help tells what else can be typed.

    In a pipe each line of the standard input is a message.
    """
    from specdec.config import check_first, check_name
    from specdec_cli import quiet_libraries

    if name is not None and model is not None:
        raise ConfigError("give one model: as MODEL or --model")
    model = name or model or choose_model("the conversation")
    check_name(model, "--model", speculative_config)  # before torch is imported
    check_first(speculative_config)

    from specdec_cli import loading

    with loading(model):
        from specdec import LLM, SamplingParams
        from specdec_cli.text.conversation import Conversation

        params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
        quiet_libraries()
        own = default_configs()[:1]
        llm = LLM(
            model,
            speculative_config=speculative_config or (own[0] if own else None),
            dtype=dtype,
            max_model_len=max_model_len,
            max_num_seqs=1,
        )
    if llm.get_tokenizer().chat_template is None:
        if system is not None:
            raise ConfigError(f"--system: {model!r} has no chat template: leave it out")
        warn(f"{model!r} has no chat template: it continues each message, and knows none before it")
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal:
        how = "without drafts" if llm.method is None else f"drafts by {llm.method} in green"
        print(f"{model}, {how}. /help lists commands.")
    _talk(Conversation(llm, params, system), is_terminal=is_terminal)


def _talk(conversation: Conversation, *, is_terminal: bool) -> None:
    def switch(*, is_drafting: bool) -> None:
        conversation.is_drafting = is_drafting

    commands: dict[str, Callable[[], object]] = {
        "/stats": lambda: print("\n".join(conversation.stats())),
        "/off": lambda: switch(is_drafting=False),
        "/on": lambda: switch(is_drafting=True),
        "/new": conversation.restart,
        "/help": lambda: print("\n".join(HELP)),
    }
    for line in _lines(is_terminal=is_terminal):
        text = line.strip()
        if text in ("/quit", "/exit"):
            return
        if text in commands:
            commands[text]()
        elif text.startswith("/") and " " not in text:
            error(f"there is no command {text!r}; commands: {', '.join((*commands, '/quit'))}")
        elif text:
            try:
                conversation.ask(text)
            except ConfigError as mistake:
                error(f"{mistake}; /new begins a new conversation")
            summary = conversation.last_summary()
            if is_terminal and summary is not None:
                from rich.console import Console

                Console(highlight=False).print(f"[dim]{summary}[/]")


def _lines(*, is_terminal: bool) -> Iterator[str]:
    """Yield the typed lines until Ctrl-D, with line editing and history; Ctrl-C drops the line."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        # A line that is not UTF-8 fails alone, when it is asked.
        sys.stdin.reconfigure(errors="surrogateescape")
    if not is_terminal:
        yield from sys.stdin
        return
    with suppress(ImportError):  # some systems lack it; lines are then read without it
        import readline  # noqa: F401  it changes how input works
    from rich.console import Console

    while True:
        try:
            line = Console(highlight=False).input("[bold cyan]>[/] ")
        except EOFError:
            return
        except KeyboardInterrupt:
            print("\n/quit or Ctrl-D ends the conversation")
            continue
        yield line
