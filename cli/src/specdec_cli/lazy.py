"""A command group whose commands are plugins: listed from metadata, imported when they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from specdec import registry
from specdec.errors import PluginError
from specdec.registry import Group, PluginInfo, known_commands

if TYPE_CHECKING:
    # Newer versions of typer bundle their own copy of click, so the type depends on the version.
    Context = Any
    Command = Any


class PluginCommands(TyperGroup):
    """The commands of entry-point group `specdec.commands`.

    The list of commands shows placeholders made from metadata. A command is imported only when it runs or its
    help is requested.
    """

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of all commands without importing any."""
        return sorted({info.name for info in registry.commands()})

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Return a placeholder with a name and a line of help."""
        info = next((info for info in registry.commands() if info.name == cmd_name), None)
        return None if info is None else TyperCommand(cmd_name, help=_line_of_help(info))

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Import and return the command that the first argument names, with the other arguments.

        Raises:
            PluginError: if there is none of that name (names the package that provides it, or the nearest command), or if it
                cannot be loaded.
        """
        name, *rest = args
        if name.startswith("-"):
            return super().resolve_command(ctx, args)
        return name, load_command(name), rest


def load_command(name: str) -> Command:
    """Return a command after importing its module.

    Raises:
        PluginError: if it cannot be loaded, or adds no command of its name.
    """
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    registry.add_command(name, app)
    commands = typer.main.get_group(app).commands
    if name not in commands:
        info = registry.find(Group.COMMANDS, name)
        added = ", ".join(sorted(commands)) or "none"
        raise PluginError(f"{info} adds no command of that name; commands it adds: {added}")
    return commands[name]


def _line_of_help(info: PluginInfo) -> str:
    official = known_commands()
    return official[info.name][1] if info.name in official else info.summary
