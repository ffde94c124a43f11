"""Offline generation: `LLM`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from rich.progress import Progress
from transformers import PreTrainedTokenizerBase

from specdec.compiled.openmp import release_threads
from specdec.config import target_of, translate_llm_arguments
from specdec.engine.build import BuiltEngine, build_engine
from specdec.engine.intake import Intake
from specdec.engine.metrics import Metric
from specdec.engine.prompts import Prompt, as_prompts
from specdec.engine_options import EngineOptions
from specdec.errors import ConfigError
from specdec.interfaces.observer import StepStats
from specdec.interfaces.sampler import Sampler
from specdec.loading.target import locate
from specdec.outputs import RequestOutput
from specdec.sampling_params import SamplingParams

_OPTION_NAMES = frozenset(field.name for field in fields(EngineOptions))


def build(model: Any, speculative_config: Any, arguments: dict[str, Any]) -> tuple[BuiltEngine, Intake]:
    """Return an engine and its intake for the arguments of `LLM`."""
    known = translate_llm_arguments(arguments | {"speculative_config": speculative_config}, _OPTION_NAMES)
    speculation = known.pop("speculative_config", None)
    options = locate(EngineOptions(model=model, **known))
    if isinstance(options.model, str) and speculation is None:
        found = target_of(options.model, options.revision)
        if found is not None:
            options, speculation = replace(options, model=found[0]), found[1]
    built = build_engine(options, speculation)
    has_priorities = options.scheduling_policy == "priority"
    return built, Intake(built.info, built.tokenizer, options.seed, has_priorities=has_priorities)


class LLM:
    """Offline generation with a target and a proposer.

    Args:
        model: a path, a hub id, a GGUF file, `zoo`, `smollm2`, or a loaded `PreTrainedModel` (then pass `tokenizer=` too).
        speculative_config: a mapping, JSON or YAML text, or the path of a file with either; None for no speculation.
        **arguments: see `EngineOptions`; vLLM's names work, and those without effect here are logged once.

    Raises:
        ConfigError: for a wrong argument, naming it and the remedy.
        PluginError: for a method or sampler that cannot be loaded.
        ModelError: for a model that cannot be served correctly.
    """

    def __init__(self, model: Any, *, speculative_config: Any = None, **arguments: Any) -> None:
        self._built, self._intake = build(model, speculative_config, arguments)
        release_threads()  # `generate` may run on another thread; here and below
        self._news: dict[str, deque[RequestOutput]] = {}

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Generate for every prompt; returns one output per prompt, in order.

        Args:
            prompts: text, token ids, or `{"prompt_token_ids": [...]}`; one or many.
            sampling_params: one for all or one per prompt; None means the defaults.
            use_tqdm: show a progress bar.

        Raises:
            ConfigError: for a prompt or parameter that cannot be served; nothing is generated then.
        """
        many = as_prompts(prompts)
        engine = self._built.engine
        prepared = [
            self._intake.prepare(self._intake.next_id(), prompt, params, is_streaming=False)
            for prompt, params in zip(many, _params_for(many, sampling_params), strict=True)
        ]
        done: dict[str, RequestOutput] = {}
        ids = [request.request_id for request, _ in prepared]
        try:
            for request, watches in prepared:
                engine.add(request, watches)
            with Progress(disable=not use_tqdm, transient=True) as progress:
                task = progress.add_task("generate", total=len(ids))
                while len(done) < len(ids):
                    for output in self._step():
                        done[output.request_id] = output
                        progress.advance(task)
        finally:
            engine.abort([request_id for request_id in ids if request_id not in done])
            release_threads()
        return [done[request_id] for request_id in ids]

    def chat(
        self,
        messages: Sequence[Any],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        **template_arguments: Any,
    ) -> list[RequestOutput]:
        """Generate the next message of one conversation, or of each of several, with the tokenizer's chat template.

        Raises:
            ConfigError: if the tokenizer has no chat template, or the template rejects the messages.
        """
        conversations = [messages] if messages and isinstance(messages[0], dict) else messages
        prompts: list[Prompt] = [
            self._intake.conversation(conversation, template_arguments) for conversation in conversations
        ]
        return self.generate(prompts, sampling_params)

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> Iterator[RequestOutput]:
        """Yield the request's output once per step; closing the iterator early aborts the request."""
        engine = self._built.engine
        request, watches = self._intake.prepare(
            self._intake.next_id(), prompt, sampling_params or SamplingParams(), is_streaming=True
        )
        engine.add(request, watches)
        news = self._news[request.request_id] = deque()
        is_finished = False
        try:
            while not is_finished:
                while not news:
                    self._step()
                output = news.popleft()
                is_finished = output.finished
                yield output
        finally:
            del self._news[request.request_id]
            if not is_finished:
                engine.abort([request.request_id])
            release_threads()

    def _step(self) -> list[RequestOutput]:
        """Run one step; returns its outputs, except those of open streams, which are queued."""
        others: list[RequestOutput] = []
        for output in self._built.engine.step():
            news = self._news.get(output.request_id)
            (others if news is None else news).append(output)
        return others

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
    def is_first_rank(self) -> bool:
        """Whether this process is rank 0, which reports the output; always True in a single process."""
        return self._built.info.tensor_parallel_rank == 0

    @property
    def last_step(self) -> StepStats | None:
        """Times and counts of the last step."""
        return self._built.engine.last_step

    def shutdown(self) -> None:
        """Drop the model and its cache; the object cannot be used afterwards."""
        del self._built
        self._intake.close()


def _params_for(
    prompts: list[Prompt], given: SamplingParams | Sequence[SamplingParams] | None
) -> list[SamplingParams]:
    if given is None:
        return [SamplingParams()] * len(prompts)
    if isinstance(given, SamplingParams | Mapping | str):
        return [given] * len(prompts)  # the intake rejects anything but SamplingParams
    if len(given) != len(prompts):
        raise ConfigError(
            f"{len(given)} sampling_params for {len(prompts)} prompts: give one, or one per prompt"
        )
    return list(given)
