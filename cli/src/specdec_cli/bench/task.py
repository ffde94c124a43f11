"""The tasks of `specdec bench`: a run on prompts, or on the questions of a suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specdec import EngineOptions
from specdec_cli import default_configs, quiet_libraries
from specdec_cli.bench import Comparison, Contender, Workload, contenders_of
from specdec_cli.bench.dataset import Prompt, read_dataset, tokenize, zoo_prompts
from specdec_cli.bench.environment import environment
from specdec_cli.bench.report import Report
from specdec_cli.bench.suites import (
    Chats,
    Suite,
    SuiteComparison,
    chats_of,
    even_sample,
    grouped,
    load_suite,
)
from specdec_cli.bench.suites.group import Group
from specdec_runtime.loading import LoadedTarget


@dataclass(frozen=True)
class Options:
    """The options of the command that all runs share."""

    model: str
    configs: list[str]
    max_tokens: int
    batch_size: int
    temperature: float
    seed: int
    dtype: str
    max_model_len: int | None
    is_deterministic: bool
    is_prefix_cached: bool

    def workload(self, prompts: tuple[tuple[int, ...], ...]) -> Workload:
        """Return the workload of these options and prompts."""
        return Workload(
            prompts,
            max_tokens=self.max_tokens,
            batch_size=self.batch_size,
            temperature=self.temperature,
            seed=self.seed,
            is_deterministic=self.is_deterministic,
            is_prefix_cached=self.is_prefix_cached,
        )


class PromptsTask:
    """A run on single prompts.

    Args:
        name: the target's name, as given.
        target: the loaded target.
        contenders: the first one is the baseline.
        workload: the prompts and how text is generated for them.
    """

    least = "the first round was not over"
    """Message for a run that ended before there was anything to report."""

    def __init__(
        self, name: str, target: LoadedTarget, contenders: list[Contender], workload: Workload
    ) -> None:
        self._name = name
        self._target = target
        self._workload = workload
        self.num_parts = len(contenders) * len(workload.prompts)
        """Calls of `on_done` in a round."""
        self.comparison = Comparison(target, workload, contenders)

    def report(self) -> Report:
        """Return the report of the run."""
        facts = environment(self._target, self._workload, len(self.comparison.rounds)) | {"model": self._name}
        return Report(self.comparison.rows(), facts, self.comparison.shown_rows())

    def progress(self, wanted: int) -> str:
        """Return how much of the requested rounds is done."""
        return f"{len(self.comparison.rounds)} of {wanted} rounds"


class SuiteTask:
    """A run on the questions of a suite.

    Args:
        name: the target's name, as given.
        target: the loaded target.
        contenders: the first one is the baseline.
        workload: how text is generated; its prompts are the first prompts of the questions.
        suite: the suite of the questions.
        groups: the questions to run.
        chats: the questions as conversations.
    """

    least = "nobody had answered the first question"

    def __init__(
        self,
        name: str,
        target: LoadedTarget,
        contenders: list[Contender],
        workload: Workload,
        suite: Suite,
        groups: list[Group],
        chats: Chats,
    ) -> None:
        self._name = name
        self._target = target
        self._workload = workload
        self._suite = suite
        self._chats = chats
        self.num_parts = len(contenders) * len(chats.by_number)
        """Calls of `on_done` in a round."""
        needed = replace(target, max_model_len=chats.max_model_len)
        self.comparison = SuiteComparison(needed, workload, groups, chats.by_number, contenders)

    def report(self) -> Report:
        """Return the report of the run."""
        facts = environment(self._target, self._workload, len(self.comparison.rounds)) | {"model": self._name}
        facts["suite"] = {
            "name": self._suite.name,
            "file": str(self._suite.file),
            "num_questions": self.comparison.num_questions,
            "num_left_out": self._chats.num_left_out,
            "is_chat": self._target.tokenizer is not None
            and self._target.tokenizer.chat_template is not None,
            "tasks": dict(self._suite.tasks),
            "bounds": "rounds" if self.comparison.has_bounds_by_rounds else "questions",
        }
        rows = self.comparison.rows()
        return Report(rows, facts, rows, self.comparison.category_rows())

    def progress(self, wanted: int) -> str:
        """Return how much of the requested rounds is done."""
        if wanted > 1 and self.comparison.num_questions == len(self._chats.by_number):
            return f"{len(self.comparison.rounds)} of {wanted} rounds"
        return f"{self.comparison.num_questions} of {len(self._chats.by_number)} questions"


def prompts_task(options: Options, file: Path | None, count: int | None, zoo_count: int) -> PromptsTask:
    """Load everything for a run on prompts.

    Args:
        options: options of the command.
        file: file with the prompts; None for the zoo's.
        count: the most prompts to use.
        zoo_count: default number of zoo prompts.

    Raises:
        ConfigError: for prompts, a model or a configuration that cannot be used.
    """
    prompts: Sequence[Prompt] = zoo_prompts(count or zoo_count) if file is None else read_dataset(file, count)
    name, target, contenders = loaded(options)
    tokens = tokenize(prompts, target.tokenizer, target.max_model_len)
    return PromptsTask(name, target, contenders, options.workload(tokens))


def suite_task(options: Options, suite_name: str, file: Path | None, count: int | None) -> SuiteTask:
    """Load everything for a run on a suite.

    Args:
        options: options of the command.
        suite_name: name of the suite.
        file: file with its questions, if it needs one.
        count: the most questions to use, evenly over the categories.

    Raises:
        ConfigError: for a suite, a model or a configuration that cannot be used.
    """
    suite = load_suite(suite_name, file)
    name, target, contenders = loaded(options)
    asked = even_sample(suite.questions, count)
    chats = chats_of(asked, target.tokenizer, target.max_model_len, options.max_tokens)
    asked = [question for question in asked if question.number in chats.by_number]
    groups = grouped(suite, asked, options.batch_size)
    first = [chats.by_number[question.number].prompt([]) for group in groups for question in group.questions]
    workload = options.workload(tuple(prompt for prompt in first if prompt is not None))
    return SuiteTask(name, target, contenders, workload, suite, groups, chats)


def loaded(options: Options) -> tuple[str, LoadedTarget, list[Contender]]:
    """Return the name of the target, the target, and the contenders: one that needs no choice if no configuration is given."""
    from specdec.config import target_facts
    from specdec_runtime.loading import load_target

    name, configs, found = located(options)
    contenders = contenders_of(
        configs or default_configs()[:1], target_facts(found.model, dtype=options.dtype)
    )
    return name, load_target(found), contenders


def located(options: Options) -> tuple[str, list[Any], EngineOptions]:
    """Return the name of the target, the configurations, and how the target is loaded."""
    from specdec.config import locate

    quiet_libraries()
    name, configs = target_and_configs(options.model, options.configs)
    found = locate(
        EngineOptions(
            model=name,
            dtype=options.dtype,
            max_model_len=options.max_model_len,
            deterministic=options.is_deterministic,
        )
    )
    return name, configs, found


def target_and_configs(model: str, configs: list[str]) -> tuple[str, list[Any]]:
    """Return the target and configurations; a speculator given as the model supplies its target and configuration."""
    from specdec.config import target_of

    found = target_of(model)
    if found is None:
        return model, list(configs)
    target, own = found
    return target, [own, *configs]
