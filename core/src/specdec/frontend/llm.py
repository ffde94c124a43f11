"""Offline generation: `LLM`."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from tqdm import tqdm

from specdec.arguments import LLMOptions, SpeculativeOptions
from specdec.config.compat import check_call
from specdec.errors import ConfigError, EngineError
from specdec.frontend.construction import build
from specdec.frontend.no_drafts import no_drafts_warning
from specdec.frontend.prompts import Prompt, as_conversations, as_prompts, numbered
from specdec.frontend.threads import FairLock, check_process, is_fork, release_threads
from specdec.lora import LoRARequest
from specdec.metrics import Metric
from specdec.outputs import RequestOutput
from specdec.sampling_params import SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdec.assembly.build import BuiltEngine
    from specdec.engine.engine import Engine
    from specdec.engine.request import Request
    from specdec.interfaces.chat import ChatOptions
    from specdec.interfaces.observer import StepStats
    from specdec.interfaces.sampler import Sampler
    from specdec.interfaces.scorer import Weights

logger = logging.getLogger("specdec")

Item = TypeVar("Item")
LoRAs = LoRARequest | str | Sequence[LoRARequest | str | None] | None
"""Adapters of requests: each a `LoRARequest`, or a name in `lora_modules`."""
_GENERATE = ("prompts", "sampling_params", "use_tqdm", "lora_request", "priority")


class LLM:
    """Offline generation with a target and a proposer. Threads may share it: their requests run in one batch.

    Args:
        model: a path, a hub id, a GGUF file, `zoo`, `smollm2`, or a loaded `PreTrainedModel` (then pass `tokenizer=` too).
        speculative_config: a mapping, JSON or YAML text, or the path of a file with either; None for no speculation.
        **arguments: see `EngineOptions`; vLLM's names work, and those without effect here are logged once.

    Raises:
        ConfigError: for a wrong argument, naming it and the remedy.
        PluginError: for a method or sampler that cannot be loaded.
        ModelError: for a model that cannot be served correctly.
    """

    def __init__(
        self,
        model: Any,
        *,
        speculative_config: SpeculativeOptions | str | Path | None = None,
        **arguments: Unpack[LLMOptions],
    ) -> None:
        self._parts: BuiltEngine | None
        self._parts, self._input_processor = build(model, speculative_config, arguments)
        release_threads()  # `generate` may run on another thread; here and below
        self._turns = FairLock()
        self._outputs: dict[str, deque[RequestOutput]] = {}
        self._left: list[str] = []
        self._has_warned = False

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | None = None,
        lora_request: LoRAs = None,
        priority: Sequence[int] | None = None,
        **others: Any,
    ) -> list[RequestOutput]:
        """Generate for every prompt; returns one output per prompt, in order.

        Args:
            prompts: text, token ids, or `{"prompt_token_ids": [...]}`; one or many.
            sampling_params: one for all or one per prompt; None means the defaults.
            use_tqdm: whether to show a progress bar; None: where the standard error stream is a terminal.
            lora_request: an adapter for all, or one per prompt with None for the target as it is; see `LoRAs`.
            priority: one per prompt, lower goes first; needs `scheduling_policy="priority"`.
            **others: vLLM's arguments; those that would change the output are refused.

        Raises:
            ConfigError: for a prompt, parameter or argument that cannot be served; nothing is generated then.
            EngineError: after `shutdown`, and in a process forked from the one that made the LLM.
        """
        check_call("LLM.generate", others, _GENERATE)
        many = as_prompts(prompts)
        ranks = [0] * len(many) if priority is None else _one_each("priority", priority, many)
        requests: list[Request] = []
        each = _params_for(many, sampling_params)
        adapters = (
            _one_each("lora_request", lora_request, many)
            if isinstance(lora_request, Sequence) and not isinstance(lora_request, str)
            else [lora_request] * len(many)
        )
        for i, params in enumerate(each):
            with numbered("prompts", i, len(many)):
                requests.append(
                    self._prepare(
                        many[i], params, is_streaming=False, priority=ranks[i], lora_request=adapters[i]
                    )
                )
        done: dict[str, RequestOutput] = {}
        is_shown = sys.stderr.isatty() if use_tqdm is None else use_tqdm
        bar = tqdm(desc="generate", total=len(requests), leave=False, disable=not is_shown)
        with self._queued(requests, done) as outputs, bar:
            while len(done) < len(requests):
                output = self._next(outputs)
                done[output.request_id] = output
                bar.update()
        ended = [done[request.request_id] for request in requests]
        self._tell_of_no_drafts(each, ended)
        return ended

    def chat(
        self,
        messages: Sequence[Any],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | None = None,
        *,
        lora_request: LoRAs = None,
        priority: Sequence[int] | None = None,
        **options: Unpack[ChatOptions],
    ) -> list[RequestOutput]:
        """Generate the next message of one conversation, or of each of several, with the tokenizer's chat template.

        Args:
            messages: each with `role` and `content`, which is text or a list of text parts; or a list of such lists.
            sampling_params: as for `generate`.
            use_tqdm: as for `generate`.
            lora_request: as for `generate`.
            priority: as for `generate`.
            **options: see `ChatOptions`. Another name must be a variable of the template, as in `chat_template_kwargs`.

        Raises:
            ConfigError: if the tokenizer has no chat template, or the template rejects the messages; for an option
                that cannot be served or would have no effect; and as for `generate`.
            EngineError: as for `generate`.
        """
        many, prompts = as_conversations(messages), list[Prompt]()
        for i, conversation in enumerate(many):
            with numbered("conversations", i, len(many)):
                prompts.append(self._input_processor.conversation(conversation, options))
        return self.generate(
            prompts, sampling_params, use_tqdm=use_tqdm, priority=priority, lora_request=lora_request
        )

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        lora_request: LoRARequest | str | None = None,
    ) -> Iterator[RequestOutput]:
        """Yield the request's output once per step; closing the iterator early aborts the request."""
        params = sampling_params or SamplingParams()
        request = self._prepare(prompt, params, is_streaming=True, lora_request=lora_request)
        done: dict[str, RequestOutput] = {}
        with self._queued([request], done) as outputs:
            while not done:
                output = self._next(outputs)
                if output.finished:
                    done[output.request_id] = output
                yield output

    def _tell_of_no_drafts(self, each: Sequence[SamplingParams], outputs: Sequence[RequestOutput]) -> None:
        """Warn once if there was something to draft for, and nothing was drafted since the engine was made."""
        # The prompt's pass brings the first token, and the last one is never drafted for.
        could_draft = any(
            params.cap_speculation(1) and len(completion.token_ids) > 2
            for params, output in zip(each, outputs, strict=True)
            for completion in output.outputs
        )
        if could_draft and not self._has_warned and self._parts is not None:
            warning = no_drafts_warning(self.method, self.get_metrics())
            self._has_warned = warning is not None
            if warning is not None:
                logger.warning(warning)

    def _prepare(self, prompt: Prompt, params: SamplingParams, **how: Any) -> Request:
        return self._input_processor.prepare(self._input_processor.next_id(), prompt, params, **how)

    @contextmanager
    def _queued(
        self, requests: list[Request], done: Mapping[str, RequestOutput]
    ) -> Iterator[deque[RequestOutput]]:
        """Queue requests and yield the queue of their outputs; in the end abort those that are not in `done`."""
        names = [request.request_id for request in requests]
        outputs: deque[RequestOutput] = deque()
        self._outputs |= dict.fromkeys(names, outputs)
        try:
            with self._turn() as engine:
                for request in requests:
                    engine.add(request)
            yield outputs
        finally:
            for name in names:
                del self._outputs[name]
            self._left += [name for name in names if name not in done]
            if self._parts is not None and not is_fork():
                # The garbage collector may close a stream in the middle of a step, which aborts at its own end.
                if self._left and not self._turns.is_own:
                    with self._turn():
                        pass
                release_threads()

    def _next(self, outputs: deque[RequestOutput]) -> RequestOutput:
        """Return the next output of a queue, running steps until there is one."""
        while not outputs:
            with self._turn() as engine:
                while not outputs:  # another thread's step may have filled the queue
                    for output in engine.step():
                        if output.request_id in self._outputs:
                            self._outputs[output.request_id].append(output)
                    if self._left or self._turns.is_wanted or self._parts is None or is_fork():
                        break
        return outputs.popleft()

    @contextmanager
    def _turn(self) -> Iterator[Engine]:
        """Yield the engine when no other thread uses it."""
        check_process()
        engine = self._built.engine
        with self._turns.take():
            try:
                yield engine
            finally:
                left, self._left = self._left, []
                if left:
                    engine.abort(left)

    @property
    def _built(self) -> BuiltEngine:
        if self._parts is None:
            raise EngineError("this LLM has been shut down: make a new one")
        return self._parts

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget all cached prefixes, as vLLM does; returns False, and does nothing, while requests run.

        Args:
            reset_running_requests: whether to forget them also then; running requests keep what they have.
        """
        with self._turn() as engine:
            return engine.reset_prefix_cache(reset_running_requests=reset_running_requests)

    def update_weights(self, weights: Weights) -> None:
        """Replace the target's weights, as between two steps of training; texts are then those of an LLM made with them.

        Cached prefixes are forgotten, and the proposer follows: a draft head or model is loaded again from its files, which may
        be new too, and what was learnt of texts is kept. If the weights are refused, nothing has changed.

        Args:
            weights: a path or hub id of a checkpoint with the same configuration; or all of its tensors, a mapping or pairs of
                name and tensor, by the names of the checkpoint or of the model. They are copied, rounded to the target's dtype;
                a model that was passed as an object gets them as well.

        Raises:
            ConfigError: if a tensor is missing, unknown, of another shape or kind, or has numbers that are not finite; while
                requests run, or during `sleep`; for weights that cannot be replaced: those that stay in blocks by
                others, of other quantisations, and of models that are split, spread, or shared with another LLM.
            ModelError: if a checkpoint cannot be read.
            PluginError: if the proposer does not follow: the weights are new, and requests run without its drafts. After any
                other error that comes once weights are written, requests are refused until an update succeeds.
        """
        with self._turn():
            self._built.weights.update(weights)
        release_threads()

    def sleep(self, level: int = 1) -> None:
        """Give memory back while something else needs it, as vLLM does; requests are refused until `wake_up`.

        Args:
            level: 1 frees the KV cache, recurrent states, models that draft and what was prepared of the weights, which move to
                the host; 2 drops the weights too, also after level 1: `wake_up` and `update_weights` must follow. A model
                passed as an object keeps its own.

        Raises:
            ConfigError: while requests run; for models that are split or spread; for level 2 of one passed as an object.
            PluginError: if the proposer fails; the engine sleeps.
        """
        with self._turn():
            self._built.weights.sleep(level)
        release_threads()

    def wake_up(self) -> None:
        """End `sleep`; does nothing if the engine does not sleep. If memory is missing, it sleeps on and the error says so.

        Raises:
            PluginError: if the proposer does not follow: requests run without its drafts.
        """
        with self._turn():
            self._built.weights.wake_up()
        release_threads()

    def is_sleeping(self) -> bool:
        """Return whether the engine sleeps."""
        return self._built.weights.is_sleeping

    def get_tokenizer(self) -> PreTrainedTokenizerBase:
        """Return the target's tokenizer.

        Raises:
            ConfigError: if there is none.
        """
        if self._built.tokenizer is None:
            raise ConfigError("this LLM has no tokenizer; pass tokenizer=")
        return self._built.tokenizer

    def get_metrics(self) -> list[Metric]:
        """Return counters over the engine's lifetime, under vLLM's names where it has them."""
        return self._built.metrics()

    @property
    def method(self) -> str | None:
        """Name of the speculative method; None without speculation."""
        speculation = self._built.speculation
        return None if speculation is None else speculation.config.method

    @property
    def sampler(self) -> type[Sampler]:
        """The sampler class; its `is_lossless` says whether the output follows the target's distribution."""
        return type(self._built.sampler)

    @property
    def last_step(self) -> StepStats | None:
        """Times and counts of the last step."""
        return self._built.engine.last_step

    def shutdown(self) -> None:
        """Drop the model and its cache; the object cannot be used afterwards."""
        if self._parts is not None:
            self._parts.end()
        self._parts = None


def _params_for(
    prompts: list[Prompt], given: SamplingParams | Sequence[SamplingParams] | None
) -> list[SamplingParams]:
    if given is None:
        return [SamplingParams()] * len(prompts)
    if isinstance(given, SamplingParams | Mapping | str):
        return [given] * len(prompts)  # the intake rejects anything but SamplingParams
    return _one_each("sampling_params", given, prompts)


def _one_each(name: str, given: Sequence[Item], prompts: list[Prompt]) -> list[Item]:
    if len(given) != len(prompts):
        raise ConfigError(f"{len(given)} {name} for {len(prompts)} prompts: give one per prompt")
    return list(given)
