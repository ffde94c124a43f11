"""An engine whose batches never finish, for timing prompts and steps, one batch after the other."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median
from time import perf_counter
from typing import Any

import torch
from transformers import PreTrainedModel

from device.clock import synchronize
from specdec import SamplingParams
from specdec.frontend import build
from specdec.interfaces import StepStats
from specdec_cli.bench.forward_probe import ForwardProbe

_WARM_UP_STEPS = 4


@dataclass(frozen=True)
class Run:
    """Prompts and steps of one batch; see `Point`."""

    prompts_s: float
    step_ms: float
    forward_ms: float
    tokens_per_s: float
    mean_acceptance_length: float
    num_generated: float
    """Tokens of each request at the middle of the timed steps."""


class SteadyEngine:
    """An engine on a model whose weights other engines share.

    Args:
        model: the target.
        config: `speculative_config`.
        options: further arguments of `LLM`.
    """

    def __init__(self, model: PreTrainedModel, config: dict[str, Any] | None, **options: Any) -> None:
        fixed = {"enable_prefix_caching": False, "skip_tokenizer_init": True, "seed": 0}
        self._built, self._input_processor = build(model, config, fixed | options)
        self._engine = self._built.engine
        self._device = self._built.info.device
        self._names = map(str, count())

    def run(self, prompts: Sequence[Sequence[int]], num_steps: int, **params: Any) -> Run:
        """Read prompts, time steps without instrumentation, then time bare passes.

        Args:
            prompts: token ids, one request for each.
            num_steps: timed steps.
            params: sampling parameters; temperature 0 by default.
        """
        synchronize(self._device)
        started = perf_counter()
        with_prompts = 0.0
        running = self._started(prompts, **params)
        for at in running:
            with_prompts = at - started
        emitted = sum(self._step().num_emitted_tokens for _ in range(_WARM_UP_STEPS))
        times, tokens, drafts, accepted = [], 0, 0, 0
        synchronize(self._device)
        began = last = perf_counter()
        for _ in range(num_steps):
            stats = self._step()
            now = perf_counter()
            times.append(1e3 * (now - last))
            last = now
            tokens += stats.num_emitted_tokens
            drafts += stats.num_drafts
            accepted += stats.num_accepted_tokens
        synchronize(self._device)
        seconds = perf_counter() - began
        forward_ms = self._bare_pass_ms(max(3, num_steps // 4))
        self.stop()
        return Run(
            with_prompts,
            median(times),
            forward_ms,
            tokens / seconds,
            1.0 + (accepted / drafts if drafts else 0.0),
            1 + (emitted + tokens / 2) / len(prompts),
        )

    def watched(
        self, prompts: Sequence[Sequence[int]], num_steps: int, watch: Callable[[Callable[[], object]], None]
    ) -> None:
        """Have steps behind prompts watched.

        Args:
            prompts: token ids, one request for each.
            num_steps: steps that `watch` is to run.
            watch: called once, with a function that runs them and waits for the device.
        """
        for _ in self._started(prompts):
            pass
        for _ in range(_WARM_UP_STEPS):
            self._step()

        def steps() -> None:
            for _ in range(num_steps):
                self._step()
            synchronize(self._device)

        watch(steps)
        self.stop()

    def arrive(
        self, prompts: Sequence[Sequence[int]], due: Sequence[float], num_tokens: int
    ) -> list[list[float]]:
        """Serve requests that arrive over time.

        Args:
            prompts: token ids, one request for each.
            due: seconds after which they arrive, in order.
            num_tokens: tokens that each generates.

        Returns:
            For each request the seconds from its arrival to each step that gave it tokens.
        """
        waiting = list(zip(due, prompts, strict=True))
        arrived: dict[str, float] = {}
        seen: dict[str, list[float]] = {}
        started = perf_counter()
        while waiting or self._engine.has_work:
            while waiting and waiting[0][0] <= perf_counter() - started:
                at, prompt = waiting.pop(0)
                name = self._add(prompt, is_streaming=True, max_tokens=num_tokens)
                arrived[name], seen[name] = started + at, []
            if self._engine.has_work:
                outputs = self._engine.step()
                now = perf_counter()
                for output in outputs:
                    seen[output.request_id].append(now - arrived[output.request_id])
        return list(seen.values())

    def stop(self) -> None:
        """Abort all requests."""
        self._engine.abort(list(self._engine._requests))
        while self._engine.has_work:
            self._engine.step()

    def close(self) -> None:
        """Drop the engine and its cache."""
        self._built.end()
        del self._built, self._engine, self._input_processor
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _add(self, prompt: Sequence[int], *, is_streaming: bool = False, **params: Any) -> str:
        name = next(self._names)
        wanted = SamplingParams(**{"temperature": 0.0, "max_tokens": None, "ignore_eos": True} | params)
        given = {"prompt_token_ids": list(prompt)}
        self._engine.add(self._input_processor.prepare(name, given, wanted, is_streaming=is_streaming))
        return name

    def _started(self, prompts: Sequence[Sequence[int]], **params: Any) -> Iterator[float]:
        """Run the steps with prompts; yields when each ended."""
        for prompt in prompts:
            self._add(prompt, **params)
        while self._step().num_prompt_tokens:
            yield perf_counter()

    def _step(self) -> StepStats:
        self._engine.step()
        stats = self._engine.last_step
        assert stats is not None
        return stats

    def _bare_pass_ms(self, num_steps: int) -> float:
        probe, times = ForwardProbe(self._device, every=1), []
        self._built.scorer.on_pass = probe
        for _ in range(num_steps):
            self._step()
            if probe.last_ms is not None:
                times.append(probe.last_ms)
        self._built.scorer.on_pass = None
        return median(times)
