"""Runs prompts through the engine in batches of a few dozen and yields finished answers."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from specdec import RequestOutput, SamplingParams
from specdec.frontend import build
from specdec_cli.bench.prompt_file import ChatPrompt
from specdec_runtime.loading import LoadedTarget
from specdec_train.answers.state_recorder import CLASS_PATH, StateRecorder

BATCH_SIZE = 48
"""Requests in flight on the CPU: at this many, plain decoding is faster than any speculation."""
DEVICE_BATCH_SIZE = 256
"""The same on a GPU."""


@dataclass(frozen=True)
class Asked:
    """A prompt and its sampling parameters."""

    prompt: Sequence[int]
    """Token ids."""
    params: SamplingParams
    question: ChatPrompt | None
    """The question behind the prompt; None if the target writes a user's turn."""
    is_written: bool = False
    """Whether the target wrote the question."""


class AnswerEngine:
    """Answers prompts, many at a time.

    Args:
        target: the loaded target.
        max_model_len: maximum number of tokens of a prompt and its answer.
        recorder: keys of the `StateRecorder` that records the target's states; None to record none.
    """

    def __init__(
        self, target: LoadedTarget, max_model_len: int, recorder: Mapping[str, Any] | None = None
    ) -> None:
        self._batch_size = BATCH_SIZE if target.device.type == "cpu" else DEVICE_BATCH_SIZE
        arguments: dict[str, Any] = {"max_model_len": max_model_len, "max_num_seqs": self._batch_size}
        speculation = None
        if recorder is not None:  # there are no states of cached prefixes
            arguments["enable_prefix_caching"] = False
            speculation = {"method": CLASS_PATH, "num_speculative_tokens": 1, "adaptive": False, **recorder}
        self._built, self._input_processor = build(target, speculation, arguments)
        self.num_tokens = 0
        """Tokens generated so far."""

    def run(
        self,
        more: Callable[[], Asked | None],
        deadline: float,
        is_interrupted: Callable[[], bool],
        on_step: Callable[[], None],
    ) -> Iterator[tuple[Asked, RequestOutput]]:
        """Yield finished requests.

        Args:
            more: returns the next prompt, or None if there is none for now.
            deadline: on `time.monotonic`'s clock; requests still running then are aborted.
            is_interrupted: called after every step; True stops the run.
            on_step: called after every step.
        """
        engine = self._built.engine
        running: dict[str, Asked] = {}
        finished: deque[tuple[Asked, RequestOutput]] = deque()
        try:
            while time.monotonic() < deadline and not is_interrupted():
                while len(running) < self._batch_size and (asked := more()) is not None:
                    name = self._input_processor.next_id()
                    request = self._input_processor.prepare(
                        name, {"prompt_token_ids": list(asked.prompt)}, asked.params, is_streaming=False
                    )
                    engine.add(request)
                    running[name] = asked
                if not running:
                    return
                for output in engine.step():
                    self.num_tokens += len(output.outputs[0].token_ids)
                    finished.append((running.pop(output.request_id), output))
                on_step()
                while finished:
                    yield finished.popleft()
        finally:
            engine.abort(list(running))

    @property
    def recorder(self) -> StateRecorder | None:
        """What has recorded the states of answers, if anything."""
        found = self._built.engine.proposer
        return found if isinstance(found, StateRecorder) else None

    def close(self) -> None:
        """Drop the engine and its cache."""
        del self._built
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
