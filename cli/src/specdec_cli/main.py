"""`specdec`: the command line."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from specdec.errors import ConfigError, EngineError, ModelError, PluginError, described
from specdec_cli import output
from specdec_cli.lazy import PluginCommands

app = typer.Typer(
    cls=PluginCommands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"specdec {version('specdec-core')}")
        raise typer.Exit


@app.callback()
def specdec(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Speculative decoding in which every method is a plugin."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; user errors print one line and return 2."""
    try:
        result = app(arguments, prog_name="specdec", standalone_mode=False)
    except (ConfigError, PluginError, ModelError) as mistake:
        output.error(str(mistake))
        return output.USER_ERROR
    except EngineError as failure:
        output.error(str(failure))
        return 1
    except ModuleNotFoundError as missing:
        if not (missing.name or "").startswith("specdec_"):
            raise
        output.error(described(missing))
        return output.USER_ERROR
    except typer.Abort:
        output.error("aborted")
        return 1
    except Exception as usage:
        message = _usage_message(usage)
        if message is None:
            raise
        return message
    return result if isinstance(result, int) else 0


def _usage_message(error: Exception) -> int | None:
    """Show a usage error of a command; return its exit code, or None for any other error."""
    code, text = getattr(error, "exit_code", None), getattr(error, "format_message", None)
    if not isinstance(code, int) or not callable(text):
        return None
    if type(error).__name__ == "NoArgsIsHelpError":
        print(text())
        return 0
    output.error(text())
    return code


def main() -> None:
    """Run the command line of this process."""
    try:
        sys.exit(run())
    finally:
        if "triton" in sys.modules:
            gc.unfreeze()  # its objects are reported as leaked if no collection has found them
        else:
            gc.freeze()  # else the end takes over a second, which collections of what torch and transformers made need
