"""Loads what a search needs, and runs it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from specdec import ConfigError
from specdec.config import ZOO, target_facts
from specdec_cli import loading, progress
from specdec_cli.bench.candidates import LeftOut
from specdec_cli.bench.dataset import Prompt, read_dataset, tokenize, zoo_prompts
from specdec_cli.bench.task import Options, located
from specdec_cli.bench.workload import Workload
from specdec_cli.tune.choice import Choice, choice_of
from specdec_cli.tune.engine import MeasuredEngine
from specdec_cli.tune.halving import Halving, Limits
from specdec_cli.tune.pool import Pool
from specdec_cli.tune.space import Space
from specdec_runtime.loading import LoadedTarget, load_target

MOST_PROMPTS = 256
"""More than can be measured in any time; of longer files evenly spaced prompts are taken."""


class TuneTask:
    """A search on a loaded model.

    Args:
        options: those shared with `specdec bench`; its configurations are tried beside those of installed methods.
        file: the prompts; None for the zoo's.
        seconds: time for the search, counted from now.

    Raises:
        ConfigError: for prompts, a model or a configuration that cannot be used.
    """

    def __init__(self, options: Options, file: Path | None, seconds: float) -> None:
        ends_at = perf_counter() + seconds
        prompts = _prompts(options.model, file)
        self.num_in_file = len(prompts)
        prompts = _even(prompts, MOST_PROMPTS)
        if len(prompts) < options.batch_size:
            raise ConfigError(
                f"--batch-size {options.batch_size}: the file has {len(prompts)} prompts, which do not fill a batch: give more "
                "prompts, or a smaller batch"
            )
        _, configs, found = located(options)
        facts = target_facts(found.model, dtype=options.dtype)
        with loading(options.model):
            target = load_target(found)
        self.workload = options.workload(tokenize(prompts, target.tokenizer, target.max_model_len))
        self.target = _with_room(target, self.workload)
        self._space = Space(facts, is_on_device=target.device.type != "cpu")
        given = self._space.given(configs)
        pool = Pool(lambda contender: MeasuredEngine(self.target, self.workload, contender))
        limits = Limits(
            len(self.workload.prompts),
            options.batch_size,
            options.max_tokens,
            ends_at,
            options.is_deterministic or str(target.dtype) in ("torch.float32", "torch.float64"),
        )
        self.halving = Halving(
            [*given, *self._space.singles()], self._space.combined, pool, limits, progress, _tell
        )

    def run(self) -> None:
        """Search until the time is used up."""
        gc.collect()
        gc.freeze()  # existing objects need not be searched for garbage again and again
        try:
            self.halving.run()
        finally:
            gc.unfreeze()

    def choice(self) -> Choice | None:
        """Return what was found so far; None if nothing was measured."""
        for stage in self.halving.stages:
            for candidate, reason in stage.left_out:
                self._space.leave_out(candidate.name, reason)
        return choice_of(self.halving, self.left_out)

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """Return what was not tried, or not to the end, and why."""
        return self._space.left_out


def _prompts(model: str, file: Path | None) -> Sequence[Prompt]:
    if file is not None:
        return read_dataset(file)
    if model != ZOO:
        raise ConfigError(
            "--prompts FILE is missing: what is fastest depends on the text, so give prompts of yours"
        )
    return zoo_prompts()


def _even(prompts: Sequence[Prompt], most: int) -> list[Prompt]:
    count = min(most, len(prompts))
    return [prompts[index * len(prompts) // count] for index in range(count)]


def _with_room(target: LoadedTarget, workload: Workload) -> LoadedTarget:
    """Return the target with a context for the longest prompt and its answer: engines live side by side."""
    needed = max(map(len, workload.prompts)) + workload.max_tokens
    return replace(target, max_model_len=min(needed, target.max_model_len))


def _tell(line: str) -> None:
    print(f"specdec: {line}", file=sys.stderr, flush=True)
