"""The hooks of specdec: what a plugin package implements, and when each is called.

An entry point names a module. A function in it with the name of a hook and the decorator `@specdec.hookimpl`
implements that hook. Hooks register classes, and their instances do the work: no hook is called per token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import typer

    from specdec.interfaces import Backend, Part, Proposer, RequestStats, Sampler, Scorer, StepStats

PROJECT = "specdec"
"""The pluggy project name of all hooks and markers."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin's module as the implementation of the hook of the same name."""


@hookspec
def specdec_register_proposers() -> type[Proposer] | list[type[Proposer]]:  # type: ignore[empty-body]
    """Return the proposer classes of this module.

    Called once, when a method whose entry point (group `specdec.proposers`) names the module is first
    requested. The class whose `name` or `aliases` contain the entry point's name is used.
    """


@hookspec
def specdec_register_samplers() -> type[Sampler] | list[type[Sampler]]:  # type: ignore[empty-body]
    """Return the sampler classes of this module.

    Called once, when a `rejection_sample_method` whose entry point (group `specdec.samplers`) names the
    module is first requested.
    """


@hookspec
def specdec_register_scorers() -> type[Scorer] | list[type[Scorer]]:  # type: ignore[empty-body]
    """Return the scorer classes of this module.

    Called once, when a scorer whose entry point (group `specdec.scorers`) names the module is first
    requested.
    """


@hookspec
def specdec_register_backends() -> type[Backend] | list[type[Backend]]:  # type: ignore[empty-body]
    """Return the backend classes of this module.

    Called once, when a model is loaded, for every installed backend (group `specdec.backends`) or those that
    `SPECDEC_BACKENDS` names.
    """


@hookspec
def specdec_register_parts() -> type[Part] | list[type[Part]]:  # type: ignore[empty-body]
    """Return the classes of this module that do a part of core's work.

    Called once, when a part whose entry point (group `specdec.parts`) names the module is first needed.
    """


@hookspec
def specdec_register_commands(app: typer.Typer) -> None:
    """Add a sub-command with the entry point's name (group `specdec.commands`) to `app`.

    Called when that command or its help runs, never for the help of `specdec` itself.
    """


@hookspec
def specdec_step_finished(stats: StepStats) -> None:
    """Observe one step of the verify loop.

    Called on the engine's thread after the step is committed, so it must be fast. Modules of group
    `specdec.observers` are loaded when the engine starts; without any implementation of this hook nothing is
    called or measured for it.
    """


@hookspec
def specdec_request_finished(stats: RequestStats) -> None:
    """Observe one finished request, aborted ones included; called after its last token is committed."""
