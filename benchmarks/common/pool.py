"""The workers of one run, each started once."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from common.process import EngineProcess
from common.protocol import Load
from common.variant import Variant


@dataclass(frozen=True)
class EngineHome:
    """Where an engine runs."""

    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)


class Pool:
    """Starts each worker on first use and ends all of them together.

    Args:
        model: folder of the model that all of them load.
        max_model_len: maximum tokens of a request.
        max_num_seqs: largest batch.
        homes: interpreters and environments of engines that do not run in this process's environment.
        prefix: command put before every interpreter.
    """

    def __init__(
        self,
        model: Path,
        max_model_len: int,
        max_num_seqs: int,
        homes: Mapping[str, EngineHome] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self._model = model
        self._max_model_len = max_model_len
        self._max_num_seqs = max_num_seqs
        self._homes = homes or {}
        self._prefix = prefix
        self._processes: dict[Variant, EngineProcess] = {}

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.close()
        self._processes.clear()

    def get(self, variant: Variant) -> EngineProcess:
        """Return the loaded worker of a variant."""
        if variant not in self._processes:
            print(f"loading {variant.name} in {variant.dtype}", file=sys.stderr, flush=True)
            home = self._homes.get(variant.engine, EngineHome())
            order = Load(
                config=variant.config,
                model=str(self._model),
                dtype=variant.dtype,
                max_model_len=self._max_model_len,
                max_num_seqs=self._max_num_seqs,
                settings=variant.settings,
            )
            environment = {"HF_HUB_OFFLINE": "1", **home.environment}
            self._processes[variant] = EngineProcess(variant, order, home.python, environment, self._prefix)
        return self._processes[variant]
