"""Draft loops whose steps need no cache, on the device, without the host between choosing tokens and running them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import ClassVar

import torch

from specdec.interfaces import PassMemory
from specdec_kernels.cuda.graphs.loop_graphs import LoopGraphs, drafted
from specdec_kernels.cuda.graphs.loop_table import NO_END
from specdec_kernels.cuda.graphs.pass_shape import sizes_for
from specdec_kernels.cuda.graphs.recorder import Recorder, Tensors
from specdec_kernels.cuda.graphs.static_choice import StaticChoice
from specdec_kernels.cuda.graphs.static_steps import StaticSteps, StepsShape
from specdec_kernels.cuda.paged_pass import Int64s
from specdec_runtime.interfaces import Chains, ChainWork, Steps

MAX_REQUESTS = 64
"""Maximum number of requests whose chains are drafted together."""
_MOST_BYTES = 2**27
"""Most memory of what a loop begins with and of the q that it returns, which limits its requests."""


class StepGraphs(LoopGraphs[StaticSteps]):
    """Drafts chains with one recording per number of requests and way to choose, all made at load.

    Args:
        steps: gives logits.
        recorder: the device's recorder.
        given: `[...]` what a request begins with, for sizes, dtype and device.
        pass_memory: where the target's verification leaves its verdicts.
    """

    contained: ClassVar[type[Exception]] = Exception
    """Also a kernel that does not compile: the first draft raises then, under guard."""

    def __init__(
        self, steps: Steps, recorder: Recorder, given: torch.Tensor, pass_memory: PassMemory
    ) -> None:
        super().__init__("drafts", recorder)
        self._pass_memory = pass_memory
        self._steps, self._like = steps, given
        self._given = given.new_zeros(0, *given.shape)
        self._sizes = [1]
        self._most_steps = 0

    @property
    def max_rows(self) -> int:
        """Maximum number of requests of a draft."""
        return self._sizes[-1]

    def prepare(self, num_requests: int, work: ChainWork) -> None:
        """Record the loops that will be asked for.

        Args:
            num_requests: the most of a batch.
            work: the longest draft of one request.
        """
        is_drawn = work.rules.is_drawn
        # What begins with a state of the target finds it where the verdict is.
        self._most_new = work.num_steps + 1 if self._like.dim() == 1 else 1
        num_bytes = (
            self._most_new * self._like.nbytes + is_drawn * 4 * (work.num_steps + 1) * work.rules.num_ids
        )
        sizes = sizes_for(min(num_requests, MAX_REQUESTS))
        self._sizes = [size for size in sizes if size == 1 or size * num_bytes <= _MOST_BYTES]
        self._most_steps = work.num_steps
        self._given = self._like.new_zeros(self._sizes[-1] * self._most_new, *self._like.shape)
        self._verdicts = self._pass_memory
        for size in self._sizes:
            for is_greedy, has_cuts in [
                (True, False),
                *([] if is_drawn else [(False, False)]),
                (False, True),
            ]:
                if self.failure is None:
                    self._record_loop(StepsShape(work.num_steps, is_greedy, has_cuts, work.rules, size))

    def draft(self, token_ids: Int64s, given: Sequence[torch.Tensor], work: ChainWork) -> Chains:
        """Return a chain for each request.

        Args:
            token_ids: `[R]` the last tokens; none of them with `ChainWork.is_unread`.
            given: `[R]` what each begins with, likewise; some may have fewer rows than others.
            work: what to draft; rows in the cache are the tokens of a text.
        """
        num_rows = len(work.num_cached)
        outputs = self._replay_behind(work)
        if outputs is not None:
            return drafted(outputs, num_rows, work)
        found = next(filter(None, map(self._find, self._shapes(num_rows, work))), None)
        if found is None:
            self.num_plain += 1
            self._last = None
            shape = StepsShape(work.num_steps, *StaticChoice.way_of(work), work.rules, num_rows)
            static = StaticSteps(shape, self._steps, self._like.new_zeros(num_rows, *self._like.shape), None)
            static.send(token_ids, work)
            static.start.put(given, range(num_rows))
            outputs = self._run(static)
        else:
            found.send(token_ids, work, self._follow(found, work))
            found.start.put(given, range(num_rows))
            outputs = self._replayed(found)
        return drafted(outputs, num_rows, work)

    def _most_rows(self, loop: StaticSteps) -> int:
        """See `LoopGraphs._most_rows`: there is no cache."""
        return NO_END

    def _shapes(self, num_rows: int, work: ChainWork) -> Iterator[StepsShape]:
        """Yield the shapes of recordings that can draft this, those with little padding first."""
        for size in self._sizes:
            if size >= num_rows and work.num_steps <= self._most_steps:
                yield StepsShape(self._most_steps, *StaticChoice.way_of(work), work.rules, size)

    def _run(self, static: StaticSteps) -> Tensors:
        device = self._like.device
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            return static.run()

    def _record_loop(self, shape: StepsShape) -> None:
        """Record a loop over zeros, and compare a replay with it."""
        memory = self._verdicts
        verdicts = None if memory is None else (memory.numbers, self._most_new)
        static = StaticSteps(shape, self._steps, self._given[: shape.num_rows * self._most_new], verdicts)

        def first() -> Tensors:
            outputs = self._run(static)
            if memory is not None and self._most_new > 1:
                static.start.compile(memory.numbers[: shape.num_rows], is_tree=shape.rules.siblings > 1)
            return outputs

        def differ(got: Tensors, expected: Tensors) -> str | None:
            return None if torch.equal(got[0], expected[0]) else "a replay gave other tokens"

        self._record(shape, static, lambda: self._run(static), first, differ)
