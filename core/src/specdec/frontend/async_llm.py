"""Generation for servers and embedding: `AsyncLLM`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from specdec.arguments import LLMOptions, SpeculativeOptions
from specdec.config.compat import check_call
from specdec.config.speculative import SpeculativeConfig
from specdec.errors import ConfigError, EngineError
from specdec.frontend.construction import build
from specdec.frontend.prompts import Prompt
from specdec.frontend.threads import check_process, release_threads
from specdec.lora import LoRARequest
from specdec.metrics import Metric
from specdec.outputs import RequestOutput
from specdec.sampling_params import SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdec.assembly.build import BuiltEngine
    from specdec.engine.engine import Engine
    from specdec.engine.request import Request
    from specdec.frontend.input_processor import InputProcessor
    from specdec.interfaces.chat import ChatOptions
    from specdec.interfaces.scorer import Weights
    from specdec.interfaces.target import TargetInfo

logger = logging.getLogger("specdec")

Result = TypeVar("Result")

_GENERATE = (
    "prompt", "sampling_params", "request_id", "is_streaming", "lora_request", "priority", "client", "must_fit",
)  # fmt: skip


class _Subscriber:
    """Receives the outputs of one request: a queue on the caller's event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[RequestOutput | BaseException] = asyncio.Queue()

    def put(self, item: RequestOutput | BaseException) -> None:
        """Enqueue an item from the engine's thread; does nothing if the loop is closed."""
        with suppress(RuntimeError):  # the loop may be closed at any moment
            self._loop.call_soon_threadsafe(self.queue.put_nowait, item)


class AsyncLLM:
    """Asynchronous generation with a target and a proposer. The engine runs on its own thread.

    Args:
        model: as for `LLM`.
        speculative_config: as for `LLM`.
        **arguments: as for `LLM`.
    """

    def __init__(
        self,
        model: Any,
        *,
        speculative_config: SpeculativeOptions | str | Path | None = None,
        **arguments: Unpack[LLMOptions],
    ) -> None:
        self._subscribers: dict[str, _Subscriber] = {}
        self._orders: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._is_running = True
        self._failure: BaseException | None = None
        # The engine is built on the thread that runs it: OpenMP keeps a thread team for each thread that ever
        # ran a parallel region.
        release_threads()
        made: Future[tuple[BuiltEngine, InputProcessor]] = Future()
        make = partial(build, model, speculative_config, arguments)
        self._thread = threading.Thread(
            target=self._make_and_run, args=(make, made), name="specdec-engine", daemon=True
        )
        self._thread.start()
        self._built, self._input_processor = made.result()

    def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        is_streaming: bool = True,
        lora_request: LoRARequest | str | None = None,
        priority: int = 0,
        client: str | None = None,
        must_fit: bool = False,
        **others: Any,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Return an async iterator over the request's outputs. Leaving it early aborts the request.

        The request is checked now and queued on the first iteration.

        Args:
            prompt: text, token ids, or `{"prompt_token_ids": [...]}`.
            sampling_params: None means the defaults.
            request_id: an id to abort by; None makes one.
            is_streaming: whether to yield once per step; else once, at the end.
            lora_request: an adapter, or the name of one in `lora_modules`; None for the target as it is.
            priority: lower goes first; needs `scheduling_policy="priority"`.
            client: name of the client, for fair scheduling: named clients share the slots of a batch equally,
                and so do the requests of one client.
            must_fit: whether to refuse `max_tokens` that the context window has no room for, instead of ending there.
            **others: vLLM's arguments; those that would change the output are refused.

        Raises:
            ConfigError: for a prompt, parameter or argument that cannot be served; on the first iteration, for an
                id that is in use.
            EngineError: on the first iteration, if the engine has been shut down or has failed; in a process forked
                from the one that made this object.
        """
        check_call("AsyncLLM.generate", others, _GENERATE)
        name = request_id or self._input_processor.next_id()
        request = self._input_processor.prepare(
            name,
            prompt,
            sampling_params or SamplingParams(),
            is_streaming=is_streaming,
            lora_request=lora_request,
            priority=priority,
            client=client,
            must_fit=must_fit,
        )
        return self._outputs(request)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        is_streaming: bool = True,
        lora_request: LoRARequest | str | None = None,
        priority: int = 0,
        client: str | None = None,
        **options: Unpack[ChatOptions],
    ) -> AsyncGenerator[RequestOutput, None]:
        """Return an async iterator over the next message of a conversation; uses the chat template.

        Args:
            messages: each with `role` and `content`, which is text or a list of text parts.
            sampling_params: as for `generate`.
            request_id: as for `generate`.
            is_streaming: as for `generate`.
            lora_request: as for `generate`.
            priority: as for `generate`.
            client: as for `generate`.
            **options: as for `LLM.chat`.

        Raises:
            ConfigError: as for `LLM.chat`.
            EngineError: as for `generate`.
        """
        prompt = self.chat_prompt(messages, **options)
        return self.generate(
            prompt,
            sampling_params,
            request_id,
            is_streaming=is_streaming,
            lora_request=lora_request,
            priority=priority,
            client=client,
        )

    def chat_prompt(
        self, messages: Sequence[Mapping[str, Any]], **options: Unpack[ChatOptions]
    ) -> dict[str, Any]:
        """Return the prompt that `chat` gives the target: `prompt` (the text) and `prompt_token_ids`.

        Raises:
            ConfigError: as for `chat`.
        """
        return self._input_processor.conversation(messages, options)

    async def abort(self, request_id: str) -> None:
        """End a request; its iterator yields once more, with finish reason `abort`. Unknown ids are ignored."""
        self._order(lambda: self._abort(request_id))

    async def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget all cached prefixes between two steps; see `LLM.reset_prefix_cache`.

        Raises:
            EngineError: if the engine has been shut down or has failed.
        """
        reset = self._built.engine.reset_prefix_cache
        return await self._between_steps(lambda: reset(reset_running_requests=reset_running_requests))

    async def update_weights(self, weights: Weights) -> None:
        """Replace the target's weights between two steps; see `LLM.update_weights`."""
        await self._between_steps(lambda: self._built.weights.update(weights))

    async def sleep(self, level: int = 1) -> None:
        """Give memory back; see `LLM.sleep`."""
        await self._between_steps(lambda: self._built.weights.sleep(level))

    async def wake_up(self) -> None:
        """End `sleep`; see `LLM.wake_up`."""
        await self._between_steps(self._built.weights.wake_up)

    async def is_sleeping(self) -> bool:
        """Return whether the engine sleeps."""
        return self._built.weights.is_sleeping

    @property
    def is_running(self) -> bool:
        """Whether requests are accepted: the engine has neither failed nor been shut down."""
        return self._is_running

    @property
    def target_info(self) -> TargetInfo:
        """Facts about the target."""
        return self._built.info

    @property
    def method(self) -> str | None:
        """Name of the speculative method; None without speculation."""
        speculation = self._built.speculation
        return None if speculation is None else speculation.config.method

    @property
    def speculative_config(self) -> SpeculativeConfig | None:
        """The common keys of the configuration, fully resolved; None without speculation."""
        speculation = self._built.speculation
        return None if speculation is None else speculation.config

    @property
    def lora_modules(self) -> Mapping[str, str]:
        """The paths of the adapters that requests may choose by name."""
        return self._input_processor.lora_modules

    @property
    def num_waiting_requests(self) -> int:
        """Number of requests of which no sample has started."""
        return self._built.engine.num_waiting_requests

    @property
    def num_requests(self) -> tuple[int, int]:
        """Number of running samples and number of waiting samples."""
        return self._built.engine.num_sequences

    def get_tokenizer(self) -> PreTrainedTokenizerBase | None:
        """Return the target's tokenizer, or None."""
        return self._built.tokenizer

    def get_metrics(self) -> list[Metric]:
        """Return counters over the engine's lifetime; see `LLM.get_metrics`."""
        return self._built.metrics()

    def shutdown(self) -> None:
        """Stop the engine's thread; requests that still run end with an error."""
        check_process()
        with self._wake:
            self._is_running = False
            self._wake.notify()
        self._thread.join()
        self._built.end()

    async def _outputs(self, request: Request) -> AsyncGenerator[RequestOutput, None]:
        name, subscriber = request.request_id, _Subscriber()
        self._order(lambda: self._add(name, subscriber, lambda: self._built.engine.add(request)))
        is_finished = False
        try:
            while not is_finished:
                item = await subscriber.queue.get()
                if isinstance(item, BaseException):
                    is_finished = True
                    raise item
                is_finished = item.finished
                yield item
        finally:
            if not is_finished:
                with suppress(EngineError):  # after a shutdown there is nothing to abort
                    self._order(lambda: self._leave(name, subscriber))

    def _order(self, order: Callable[[], None]) -> None:
        """Queue a callable that the engine's thread runs between two steps."""
        check_process()
        with self._wake:
            if not self._is_running:
                raise self._end()
            self._orders.append(order)
            self._wake.notify()

    async def _between_steps(self, call: Callable[[], Result]) -> Result:
        """Return what a callable returns, or raise what it raises, on the engine's thread between two steps."""
        done = Future[Result]()

        def answer() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(call())
                except BaseException as error:  # of the caller, who waits for it
                    done.set_exception(error)

        self._order(answer)
        return await asyncio.wrap_future(done)

    def _end(self) -> EngineError:
        """Return the error that says why the engine has stopped."""
        if self._failure is None:
            return EngineError("this AsyncLLM has been shut down")
        error = EngineError(f"the engine failed: {type(self._failure).__name__}: {self._failure}")
        error.__cause__ = self._failure
        return error

    def _add(self, request_id: str, subscriber: _Subscriber, add: Callable[[], None]) -> None:
        if request_id in self._subscribers:
            subscriber.put(ConfigError(f"request id {request_id!r} is in use"))
            return
        self._subscribers[request_id] = subscriber
        try:
            add()
        except ValueError as error:
            del self._subscribers[request_id]
            subscriber.put(error)

    def _leave(self, request_id: str, subscriber: _Subscriber) -> None:
        """Abort a request, unless its id now belongs to another subscriber."""
        if self._subscribers.get(request_id) is subscriber:
            self._abort(request_id)

    def _abort(self, request_id: str) -> None:
        for output in self._built.engine.abort([request_id]):
            self._publish(output)

    def _publish(self, output: RequestOutput) -> None:
        subscriber = self._subscribers.get(output.request_id)
        if subscriber is not None:
            subscriber.put(output)
        if output.finished:
            self._subscribers.pop(output.request_id, None)

    def _make_and_run(
        self,
        make: Callable[[], tuple[BuiltEngine, InputProcessor]],
        made: Future[tuple[BuiltEngine, InputProcessor]],
    ) -> None:
        try:
            parts = make()
        except BaseException as error:  # re-raised in `__init__`, which waits for the result
            made.set_exception(error)
            return
        made.set_result(parts)
        engine = parts[0].engine
        try:
            self._run(engine)
        except BaseException as failure:  # every waiting caller receives it
            logger.exception("the engine failed; every request ends")
            self._failure = failure
        finally:
            self._stop(engine)

    def _run(self, engine: Engine) -> None:
        while True:
            with self._wake:
                while self._is_running and not self._orders and not engine.has_work:
                    self._wake.wait()
                if not self._is_running:
                    return
            self._obey()
            if engine.has_work:
                for output in engine.step():
                    self._publish(output)

    def _obey(self) -> None:
        """Run the callables queued so far."""
        while self._orders:
            self._orders.popleft()()

    def _stop(self, engine: Engine) -> None:
        """Stop taking work, and send the error to every subscriber."""
        with self._wake:
            self._is_running = False
        while self._orders:
            with suppress(Exception):  # subscribers receive the error below
                self._obey()
        with suppress(Exception):  # it may raise after a failed step
            engine.abort(list(self._subscribers))
        error = self._end()
        for subscriber in self._subscribers.values():
            subscriber.put(error)
        self._subscribers.clear()
