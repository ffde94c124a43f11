"""One engine of a run, from its creation to its end."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch

from specdec import RequestOutput, SamplingParams
from specdec.frontend import build
from specdec_cli.bench.contender import Contender
from specdec_cli.bench.conversation import Conversation, OnePrompt
from specdec_cli.bench.forward_probe import ForwardProbe
from specdec_cli.bench.memory import PeakMemory
from specdec_cli.bench.step_time import StepLog
from specdec_cli.bench.turn import Turn
from specdec_cli.bench.workload import Workload
from specdec_runtime.loading import LoadedTarget

WARM_UP_STEPS = 8


@dataclass(frozen=True)
class WarmUp:
    """Durations of the steps before a measurement, in seconds."""

    prompts_s: float
    """Of all steps with tokens of prompts; those of the first warm-up of a process may compile."""
    step_s: float
    """Of the median step without."""
    fastest_step_s: float
    """Of the fastest of these: others may have waited for the machine."""


class Session:
    """A fresh engine on the shared target, for one pass over the prompts.

    Every pass has its own engine because proposers may learn from earlier requests: a proposer that saw
    the same prompts in an earlier round would know the answers, and a prefix cache would hold the prompts.
    Several sessions may exist at the same time.

    Args:
        target: the loaded target; its weights are shared, not copied.
        contender: the configuration to measure.
        workload: the prompts and sampling parameters.

    Raises:
        ConfigError: for an invalid configuration.
        PluginError: for a method or sampler that cannot be loaded.
    """

    def __init__(self, target: LoadedTarget, contender: Contender, workload: Workload) -> None:
        self.workload = workload
        """May be replaced between passes by one of the same batch size."""
        self._num_errors = 0
        self._peak = PeakMemory(target.device)
        self._built, self._input_processor = build(
            target,
            contender.config,
            {
                "max_model_len": target.max_model_len,
                "max_num_seqs": workload.batch_size,
                "enable_prefix_caching": workload.is_prefix_cached,
                "deterministic": workload.is_deterministic,
            },
        )

    def warm_up(self, num_steps: int = WARM_UP_STEPS) -> WarmUp:
        """Run a few steps and abort the requests; proposers do not learn from aborted requests.

        The prompts are reversed, so a prefix cache holds none of the real prompts afterwards.
        """
        engine, workload = self._built.engine, self.workload
        params = SamplingParams(
            temperature=workload.temperature, seed=workload.seed, max_tokens=None, ignore_eos=True
        )
        names = [f"warm-up-{index}" for index in range(min(workload.batch_size, len(workload.prompts)))]
        for name, prompt in zip(names, workload.prompts, strict=False):
            self._add(name, prompt[::-1], params)
        prompts_s, steps = 0.0, []
        for _ in range(num_steps):
            started = perf_counter()
            ended = engine.step()
            seconds = perf_counter() - started
            assert engine.last_step is not None
            if engine.last_step.num_prompt_tokens:
                prompts_s += seconds
            else:
                steps.append(seconds)
            if ended:
                break
        engine.abort(names)
        steps = steps or [prompts_s]
        return WarmUp(prompts_s, median(steps), min(steps))

    def run(self, on_done: Callable[[], None] = lambda: None) -> Turn:
        """Generate for every prompt of the workload, `batch_size` of them at a time.

        Args:
            on_done: called after each prompt.
        """
        return self.converse(list(enumerate(map(OnePrompt, self.workload.prompts))), on_done)

    def converse(
        self, conversations: Sequence[tuple[int, Conversation]], on_done: Callable[[], None] = lambda: None
    ) -> Turn:
        """Run conversations, `batch_size` at a time; the requests of one conversation run one after another.

        Args:
            conversations: conversations, each with the number that is added to the workload's seed.
            on_done: called after each conversation.
        """
        engine, workload = self._built.engine, self.workload
        probe = ForwardProbe(self._built.info.device)
        self._built.scorer.on_pass = None if workload.is_recorded else probe
        waiting = deque(range(len(conversations)))
        outputs: list[list[RequestOutput]] = [[] for _ in conversations]
        asked: list[list[float]] = [[] for _ in conversations]
        num_done = num_running = 0
        started = perf_counter()
        log = StepLog(probe)
        while num_done < len(conversations):
            while waiting and num_running < workload.batch_size:
                index = waiting.popleft()
                asked[index].append(perf_counter())
                num_running += self._ask(index, conversations[index], ())
            for output in engine.step():
                index = int(output.request_id)
                outputs[index].append(output)
                asked[index].append(perf_counter())
                if not self._ask(index, conversations[index], outputs[index]):
                    num_running -= 1
                    num_done += 1
                    on_done()
            assert engine.last_step is not None
            log.add(engine.last_step)
        wall_s = perf_counter() - started - probe.total_s
        self._built.scorer.on_pass = None
        return Turn(
            wall_s=wall_s,
            outputs=tuple(output for answers in outputs for output in answers),
            steps=tuple(log.steps),
            peak_memory_mb=self._peak.read_mb(),
            num_proposer_errors=self._new_errors(),
            started=tuple(m for a, o in zip(asked, outputs, strict=True) for m in a[: len(o)]),
        )

    def close(self) -> None:
        """Drop the engine and its cache; the target stays loaded."""
        del self._built
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _new_errors(self) -> int:
        """Return how often the proposer failed since the previous pass; the first pass includes the warm-up."""
        before, self._num_errors = self._num_errors, self._built.engine.metrics.proposer_errors
        return self._num_errors - before

    def _ask(
        self, index: int, conversation: tuple[int, Conversation], answers: Sequence[RequestOutput]
    ) -> bool:
        """Queue the next request of a conversation; return whether there is one."""
        number, prompts = conversation
        prompt = prompts.prompt([answer.outputs[0].text for answer in answers])
        if prompt is not None:
            self._add(str(index), prompt, self.workload.params(number))
        return prompt is not None

    def _add(self, name: str, prompt: tuple[int, ...], params: SamplingParams) -> None:
        request = self._input_processor.prepare(
            name, {"prompt_token_ids": list(prompt)}, params, is_streaming=False
        )
        self._built.engine.add(request)
