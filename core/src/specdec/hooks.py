"""The hooks of specdec: what a plugin package implements, and when each is called.

An entry point names a module; functions in it that carry the name of a hook and `@specdec.hookimpl` are its
implementations. Hooks register classes, objects run: no hook is called per token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import typer

    from specdec.interfaces import Proposer, RequestStats, Sampler, Scorer, StepStats

PROJECT = "specdec"
"""The name all hooks and marks belong to."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin's module as the implementation of the hook of the same name."""


@hookspec
def specdec_register_proposers() -> type[Proposer] | list[type[Proposer]]:  # type: ignore[empty-body]
    """Return the proposer classes of this module.

    Called once, when a method whose entry point (group `specdec.proposers`) names the module is first asked
    for. The class whose `name` or `aliases` hold the entry point's name is taken.
    """


@hookspec
def specdec_register_samplers() -> type[Sampler] | list[type[Sampler]]:  # type: ignore[empty-body]
    """Return the sampler classes of this module.

    Called once, when a `rejection_sample_method` whose entry point (group `specdec.samplers`) names the
    module is first asked for.
    """


@hookspec
def specdec_register_scorers() -> type[Scorer] | list[type[Scorer]]:  # type: ignore[empty-body]
    """Return the scorer classes of this module.

    Called once, when a scorer whose entry point (group `specdec.scorers`) names the module is first asked
    for.
    """


@hookspec
def specdec_register_commands(app: typer.Typer) -> None:
    """Add a sub-command of the entry point's name (group `specdec.commands`) to `app`.

    Called when that command is run or its help is asked for, never for the help of `specdec` itself.
    """


@hookspec
def specdec_step_finished(stats: StepStats) -> None:
    """Take note of one turn of the verify loop.

    Called after the step is committed, from the engine's thread: be quick. Modules of group
    `specdec.observers` are loaded when the engine starts; without any implementation of this hook nothing is
    called or measured for it.
    """


@hookspec
def specdec_request_finished(stats: RequestStats) -> None:
    """Take note of one finished request, aborted ones included; called after its last token is committed."""
