"""An engine with a batch that never finishes, for timing steps."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch
from transformers import PreTrainedModel

from device.clock import synchronize
from device.split import Borders, Split
from specdec import EngineOptions, SamplingParams
from specdec.frontend import build
from specdec.interfaces import StepStats
from specdec_cli.bench.forward_probe import ForwardProbe

_WARM_UP_STEPS = 4


@dataclass(frozen=True)
class FreeRun:
    """Undisturbed steps."""

    step_ms: float
    """Median time from the end of one step to the end of the next."""
    wall_s: float
    num_tokens: int
    """Emitted tokens of all requests."""
    num_drafts: int
    num_accepted_tokens: int


class SteadyEngine:
    """A fresh engine on a shared model; all requests run from the first step to the last.

    Args:
        model: the target; its weights are shared, not copied.
        config: `speculative_config`.
        prompts: one request for each, named by its index.
        num_steps: total number of steps to run; the context is long enough for every draft to be accepted.
    """

    def __init__(
        self, model: PreTrainedModel, config: Any, prompts: Sequence[Sequence[int]], num_steps: int
    ) -> None:
        most = 1 + (config["num_speculative_tokens"] if config else 0)
        rows = EngineOptions(model=model).max_num_batched_tokens
        num_prefill_steps = 1 + -(
            -2 * sum(map(len, prompts)) // rows
        )  # the first prompts decode while the last are read
        longest = max(map(len, prompts)) + most * (num_steps + _WARM_UP_STEPS + num_prefill_steps) + 1
        arguments = {
            "max_model_len": longest,
            "max_num_seqs": len(prompts),
            "enable_prefix_caching": False,
            "skip_tokenizer_init": True,
            "strict_drafts": True,
            "seed": 0,
            "async_scheduling": False,  # the parts of a step are timed one after the other
        }
        self._built, input_processor = build(model, config, arguments)
        self._device = self._built.info.device
        self._num_requests = len(prompts)
        self._num_emitted = 0
        params = SamplingParams(temperature=0.0, max_tokens=None, ignore_eos=True)
        for index, prompt in enumerate(prompts):
            given = {"prompt_token_ids": list(prompt)}
            request = input_processor.prepare(str(index), given, params, is_streaming=False)
            self._built.engine.add(request)
        self._step()
        while self._stats.num_prompt_tokens:
            self._step()
        for _ in range(_WARM_UP_STEPS):
            self._step()

    @property
    def num_emitted(self) -> float:
        """Tokens emitted so far, per request."""
        return self._num_emitted / self._num_requests

    def run(self, num_steps: int) -> FreeRun:
        """Run steps without instrumentation."""
        times, before = [], self._num_emitted
        num_drafts = num_accepted = 0
        synchronize(self._device)
        start = last = perf_counter()
        for _ in range(num_steps):
            self._step()
            now = perf_counter()
            times.append(1e3 * (now - last))
            last = now
            num_drafts += self._stats.num_drafts
            num_accepted += self._stats.num_accepted_tokens
        synchronize(self._device)
        wall_s = perf_counter() - start
        return FreeRun(median(times), wall_s, self._num_emitted - before, num_drafts, num_accepted)

    def profile(self, num_steps: int) -> tuple[Split, float]:
        """Run steps in pairs, with a device sync at the borders of their parts.

        In the second step of a pair the bare pass runs once more, alone, under the same conditions as in the first.

        Args:
            num_steps: number of pairs.

        Returns:
            The medians of the parts, and the median of the bare pass in milliseconds.
        """
        probe = ForwardProbe(self._device, every=1)
        scorer = self._built.scorer
        splits, times = [], []
        with Borders(self._built) as borders:
            for _ in range(num_steps):
                splits.append(borders.step())
                self._count()
                scorer.on_pass = probe
                borders.step()
                scorer.on_pass = None
                self._count()
                assert probe.last_ms is not None
                times.append(probe.last_ms)
        return Split.median_of(splits), median(times)

    def close(self) -> None:
        """Drop the engine and its cache."""
        del self._built
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def _stats(self) -> StepStats:
        stats = self._built.engine.last_step
        assert stats is not None
        return stats

    def _step(self) -> None:
        self._built.engine.step()
        self._count()

    def _count(self) -> None:
        self._num_emitted += self._stats.num_emitted_tokens
        assert self._stats.num_requests == self._num_requests or self._stats.num_prompt_tokens, (
            "one has ended"
        )
