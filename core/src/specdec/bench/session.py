"""One engine of a run, from its making to its end."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from time import perf_counter

import torch

from specdec.bench.contender import Contender
from specdec.bench.forward_probe import ForwardProbe
from specdec.bench.memory import PeakMemory
from specdec.bench.step_time import StepLog
from specdec.bench.turn import Turn
from specdec.bench.workload import Workload
from specdec.llm import build
from specdec.loading.target import LoadedTarget
from specdec.outputs import RequestOutput
from specdec.sampling_params import SamplingParams

WARM_UP_STEPS = 8


class Session:
    """A fresh engine on the shared target, for one turn.

    Every turn gets an engine of its own because proposers may learn from what they have seen: one that met
    the same prompts in an earlier round would know the answers. Prefixes are not cached, for the same reason.

    Args:
        target: the loaded target; its weights are shared, not copied.
        contender: what is measured.
        workload: what it generates.

    Raises:
        ConfigError: for a configuration that is wrong.
        PluginError: for a method or sampler that cannot be loaded.
    """

    def __init__(self, target: LoadedTarget, contender: Contender, workload: Workload) -> None:
        self._workload = workload
        self._peak = PeakMemory(target.device)
        self._built, self._intake = build(
            target,
            contender.config,
            {
                "max_model_len": target.max_model_len,
                "max_num_seqs": workload.batch_size,
                "enable_prefix_caching": False,
            },
        )

    def warm_up(self, num_steps: int = WARM_UP_STEPS) -> None:
        """Run a few steps and abort them: aborted requests teach a proposer nothing."""
        engine, workload = self._built.engine, self._workload
        params = SamplingParams(
            temperature=workload.temperature, seed=workload.seed, max_tokens=None, ignore_eos=True
        )
        names = [f"warm-up-{index}" for index in range(min(workload.batch_size, len(workload.prompts)))]
        for name, prompt in zip(names, workload.prompts, strict=False):
            self._add(name, prompt, params)
        for _ in range(num_steps):
            if engine.step():
                break
        engine.abort(names)

    def run(self, on_done: Callable[[], None] = lambda: None) -> Turn:
        """Generate for every prompt, `batch_size` of them at a time.

        Args:
            on_done: called after each request.
        """
        engine, workload = self._built.engine, self._workload
        probe = ForwardProbe(self._built.info.device)
        self._built.scorer.on_pass = probe
        waiting = deque(enumerate(workload.prompts))
        outputs: dict[int, RequestOutput] = {}
        num_running = 0
        started = perf_counter()
        log = StepLog(probe)
        while len(outputs) < len(workload.prompts):
            while waiting and num_running < workload.batch_size:
                index, prompt = waiting.popleft()
                self._add(str(index), prompt, workload.params(index))
                num_running += 1
            for output in engine.step():
                outputs[int(output.request_id)] = output
                num_running -= 1
                on_done()
            assert engine.last_step is not None
            log.add(engine.last_step)
        wall_s = perf_counter() - started - probe.total_s
        self._built.scorer.on_pass = None
        return Turn(
            wall_s=wall_s,
            outputs=tuple(outputs[index] for index in range(len(workload.prompts))),
            steps=tuple(log.steps),
            peak_memory_mb=self._peak.read_mb(),
        )

    def close(self) -> None:
        """Drop the engine and its cache; the target stays."""
        del self._built
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _add(self, name: str, prompt: tuple[int, ...], params: SamplingParams) -> None:
        request, watches = self._intake.prepare(
            name, {"prompt_token_ids": list(prompt)}, params, is_streaming=False
        )
        self._built.engine.add(request, watches)
