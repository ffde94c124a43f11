"""`specdec new`: writes the skeleton of a plugin package."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from specdec import ConfigError, hookimpl
from specdec_cli import print_json
from specdec_testing.scaffold import KINDS, plugin_names, write_package

_OTHERS = {"policy": ": how much is drafted is a proposer's own judgement, or that of one that wraps others"}
"""Names that are not kinds of plugin, with advice on what to use instead."""


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec new`."""
    app.command("new")(new)


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Words with - between them: my-idea makes method my_idea.")
    ],
    kind: Annotated[str, typer.Option(metavar="|".join(KINDS), help="What the plugin is.")] = "proposer",
    directory: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the package's folder is made.")
    ] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write the skeleton of a plugin package.

    It can be installed as it is, works, and passes its tests; put your idea in place of the one that it comes with.
    """
    if kind not in KINDS:
        raise ConfigError(f"--kind: {kind!r} is none of {', '.join(KINDS)}{_OTHERS.get(kind, '')}")
    names = plugin_names(name, KINDS[kind].group)
    files = write_package(names, KINDS[kind], directory)
    if as_json:
        print_json({"name": names.module, "distribution": names.distribution, "files": files})
        return
    for file in files:
        print(file)
    package = directory / names.folder
    installed = str(package) if find_spec("pytest") else f"'{package}[testing]'"
    print(f"\nnext: pip install -e {installed} && specdec check {names.module}")
