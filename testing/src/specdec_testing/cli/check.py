"""`specdec check`: runs the conformance tests on a plugin."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specdec import ConfigError, PluginError, hookimpl, registry
from specdec.registry import Group
from specdec_cli import print_json, print_table, progress

if TYPE_CHECKING:
    from specdec_testing.checks import Check
    from specdec_testing.runner import PromiseReport


MOST_LINES = 40
"""The most different lines of a plugin's output to show."""


@hookimpl
def specdec_register_commands(app: typer.Typer) -> None:
    """Add `specdec check`."""
    app.command("check")(check)


def check(
    method: Annotated[
        str | None,
        typer.Argument(
            metavar="METHOD", help="A method, sampler, scorer or backend: its name, or ./file.py:Class."
        ),
    ] = None,
    config: Annotated[str, typer.Option(metavar="JSON", help="The other keys of its configuration.")] = "{}",
    model: Annotated[
        str | None,
        typer.Option(
            help="Target: a directory, a hub id, a GGUF file, smollm2, zoo, or tiny for random weights. Default: zoo, or "
            "tiny where that is not installed."
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help="In place of METHOD: vllm, sglang, transformers or llama_cpp, as its adapter runs proposers in it.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run the conformance tests on an installed method.

    One line per promise: kept, broken, or not applicable; what is broken comes with what to fix. The exit code is 1 if a
    promise is broken. Samplers, scorers and backends are checked likewise, and engines with `--host`.
    """
    keys = _keys(config)
    if (method is None) == (host is None):
        raise ConfigError("specdec check: give METHOD or --host, one of them")
    if host is not None and keys:
        raise ConfigError(f"--config: a host has no configuration; leave out {', '.join(sorted(keys))}")
    group = None if method is None else _group_of(method)
    if find_spec("pytest") is None:
        raise ConfigError('specdec check needs pytest: pip install "specdec-testing"')

    from specdec_cli import quiet_libraries
    from specdec_testing.checks import prepare, prepare_host
    from specdec_testing.support.tiny import DEFAULT_MODEL

    quiet_libraries()
    target, name = model or DEFAULT_MODEL, method or host or ""
    prepared = prepare_host(name, target) if group is None else prepare(group, name, keys, target)
    with progress(f"checking {name}", prepared.num_promises) as steps:
        reports = prepared.run(lambda _: steps.advance())
    num_broken = sum(report.verdict == "broken" for report in reports)
    if as_json:
        print_json(_as_json(name, prepared, reports))
    else:
        _print(name, prepared, reports)
    if num_broken:
        raise typer.Exit(1)


def _keys(text: str) -> Mapping[str, Any]:
    try:
        keys = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"--config: not JSON: {error}") from None
    if not isinstance(keys, dict):
        raise ConfigError(f"--config: give an object of keys and values, not {text}")
    return keys


def _group_of(name: str) -> Group:
    """Return the group of a plugin; for a name, as opposed to a path, from metadata alone.

    Raises:
        PluginError: for a name that is not installed, or a path that names no plugin.
    """
    from specdec.registry import is_class_path, load_class

    if not is_class_path(name):
        kinds = (Group.PROPOSERS, Group.SAMPLERS, Group.SCORERS, Group.BACKENDS)
        for kind in kinds:
            if any(info.name == name for info in registry.installed(kind)):
                return kind
        return registry.find(Group.PROPOSERS, name).group

    from specdec.interfaces import Backend, Proposer, Sampler, Scorer

    found = load_class(name)
    bases: dict[type, Group] = {
        Proposer: Group.PROPOSERS,
        Sampler: Group.SAMPLERS,
        Scorer: Group.SCORERS,
        Backend: Group.BACKENDS,
    }
    if isinstance(found, type):
        for base, group in bases.items():
            if issubclass(found, base):
                return group
    raise PluginError(f"{name!r} is no Proposer, Sampler, Scorer or Backend")


def _print(method: str, prepared: Check, reports: Sequence[PromiseReport]) -> None:
    print(f"{prepared.noun} {method}" + (f" on {prepared.model}" if prepared.model else ""))
    print_table(["verdict", "promise"], [(report.verdict, _line(report)) for report in reports])
    counts = {
        verdict: sum(report.verdict == verdict for report in reports)
        for verdict in ("kept", "broken", "not applicable")
    }
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    _print_output(reports)


def _print_output(reports: Sequence[PromiseReport]) -> None:
    """Print the plugin's own output, each distinct line once."""
    lines = (line for report in reports for line in report.output.splitlines())
    counts = Counter(line for line in lines if line.strip() and not line.startswith("specdec: checking "))
    if not counts:
        return
    print("\nprinted by the plugin:")
    for line, count in list(counts.items())[:MOST_LINES]:
        print(f"  {line}" + (f"  ({count} times)" if count > 1 else ""))
    if len(counts) > MOST_LINES:
        print(f"  and {len(counts) - MOST_LINES} lines more: --json has all")


def _line(report: PromiseReport) -> str:
    """Return a promise, why it is not kept, how to fix it and what was measured, in one line."""
    parts = [report.promise.removesuffix(".")]
    if report.reason:
        parts.append(report.reason)
    if report.fix:
        parts.append(f"To fix: {report.fix}")
    parts += [f"{name.replace('_', ' ')}: {value}" for name, value in report.facts.items()]
    return " | ".join(parts)


def _as_json(method: str, prepared: Check, reports: Sequence[PromiseReport]) -> dict[str, Any]:
    return {
        "name": method,
        "kind": prepared.noun,
        "model": prepared.model,
        "config": dict(prepared.config),
        "is_conforming": all(report.verdict != "broken" for report in reports),
        "promises": [
            {
                "name": report.name,
                "promise": report.promise,
                "verdict": report.verdict.value,
                "reason": report.reason,
                "fix": report.fix,
                "facts": report.facts,
                "output": report.output,
            }
            for report in reports
        ],
    }
