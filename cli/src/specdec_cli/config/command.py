"""`specdec config`: prints the schema of `speculative_config`, or checks a configuration."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specdec import hookimpl
from specdec_cli import print_fields, print_json


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec config`."""
    app.add_typer(_commands(), name="config")


def _commands() -> typer.Typer:
    commands = typer.Typer(
        help="Print the schema of speculative_config, or check one.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    commands.command("schema")(schema)
    commands.command("validate")(validate)
    return commands


def schema() -> None:
    """Print the JSON Schema of speculative_config, for every method and sampler that is installed."""
    from specdec_cli.config.schema import json_schema

    print_json(json_schema())


def validate(
    config: Annotated[
        str, typer.Argument(metavar="FILE|JSON", help="A file with JSON or YAML, or JSON itself.")
    ],
    model: Annotated[
        str | None, typer.Option("--model", help="Target: also check that draft and target fit.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a speculative_config, and print what it means in full."""
    from specdec.config import parse_speculative_config, resolve_name, target_facts
    from specdec_cli.config.fit import check_fit

    target = None if model is None else target_facts(resolve_name(model))
    resolved = parse_speculative_config(config, target=target)
    assert resolved is not None
    report: dict[str, Any] = {
        "config": resolved.config.model_dump(exclude_none=True),
        "proposer": f"{resolved.proposer_class.__module__}.{resolved.proposer_class.__qualname__}",
        "proposer_config": resolved.proposer_config.model_dump(),
        "sampler": f"{resolved.sampler_class.__module__}.{resolved.sampler_class.__qualname__}",
        "sampler_config": resolved.sampler_config.model_dump(),
        "is_lossless": resolved.sampler_class.is_lossless,
    }
    if target is not None:
        report |= check_fit(resolved, target)
    if as_json:
        print_json(report)
        return
    print("valid")
    for name, value in report.items():
        if isinstance(value, dict):
            print(f"\n{name}")
            print_fields({f"  {key}": entry for key, entry in value.items()})
    print()
    print_fields({key: value for key, value in report.items() if not isinstance(value, dict)})
