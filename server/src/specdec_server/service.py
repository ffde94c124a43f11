"""The served engine and operations shared by its routes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from transformers import PreTrainedTokenizerBase

from specdec import AsyncLLM, ConfigError, RequestOutput, SamplingParams
from specdec_server.errors import ApiError
from specdec_server.preparation import Preparation
from specdec_server.protocol.generation import GenerationRequest
from specdec_server.record import CURRENT_RECORD
from specdec_server.settings import Settings
from specdec_server.telemetry import Telemetry
from specdec_server.usage import request_metrics

Result = TypeVar("Result")


class Service:
    """A served engine.

    Args:
        llm: the engine.
        settings: how to answer.

    Raises:
        ConfigError: if an adapter has a name of the model.
    """

    def __init__(self, llm: AsyncLLM, settings: Settings) -> None:
        self.llm, self.settings = llm, settings
        self.model_names = (*settings.model_names, *llm.lora_modules)
        """What requests may call the model: its own names, then those of its adapters."""
        both = [name for name in llm.lora_modules if name in settings.model_names]
        if both:
            raise ConfigError(
                f"--lora-modules: {both[0]!r} is the name of the model itself: give another one"
            )
        self.telemetry = Telemetry(llm.get_metrics, settings.model_names[0], settings.engine or 0)
        self.load = 0
        """How many requests for text are being answered."""
        self._unfinished: Counter[str] = Counter()
        self._preparation = Preparation(settings.limits.prepare_timeout_s)

    async def prepared(self, prepare: Callable[[], Result]) -> Result:
        """Return the result of reading, tokenizing and checking, while other requests continue.

        Raises:
            ApiError: if it takes too long.
        """
        try:
            return await self._preparation.run(prepare, self.client or "")
        except RecursionError:
            raise ApiError(
                "the body is nested too deeply: a schema or a message has too many levels"
            ) from None

    def generate(
        self, prompt: Any, params: SamplingParams, name: str, body: GenerationRequest
    ) -> AsyncGenerator[RequestOutput, None]:
        """Return the growing output of a prompt, with the request body's options and on behalf of its client.

        Raises:
            ConfigError: as for `AsyncLLM.generate`.
        """
        most = self.settings.max_new_tokens
        if most is not None:
            params = params.model_copy(update={"max_tokens": min(most, params.max_tokens or most)})
        if body.cache_salt is not None:
            key = "prompt" if isinstance(prompt, str) else "prompt_token_ids"
            prompt = {
                **(prompt if isinstance(prompt, dict) else {key: prompt}),
                "cache_salt": body.cache_salt,
            }
        return self.llm.generate(
            prompt,
            params,
            name,
            is_streaming=bool(body.stream),
            lora_request=body.model if body.model in self.llm.lora_modules else None,
            priority=body.priority or 0,
            client=self.client,
            must_fit=body.has_limit,
        )

    @property
    def client(self) -> str | None:
        """The client of the current request, for fair scheduling."""
        record = CURRENT_RECORD.get()
        return None if record is None else record.client

    @property
    def owner(self) -> str:
        """Whom the current request stores for: its key, if there are several; otherwise all clients are one."""
        return (self.client or "") if len(self.settings.api_keys) > 1 else ""

    @property
    def num_queued(self) -> int:
        """How many requests wait to be prepared or to run."""
        return self._preparation.num_requests + self.llm.num_waiting_requests

    def count(self, client: str | None, num_requests: int) -> None:
        """Count requests of a client to the engine that begin; with a negative number, those that end."""
        self._unfinished[client or ""] += num_requests
        self._unfinished = +self._unfinished

    @property
    def has_share(self) -> bool:
        """Whether the current client has fewer unfinished requests than its share of the queue."""
        own = self._unfinished[self.client or ""]
        return own * len({*self._unfinished, self.client or ""}) < self.settings.limits.max_queued_requests

    @property
    def num_ended(self) -> int:
        """How many requests to the engine have ended so far."""
        return self.telemetry.num_ended

    def metrics_of(self, outputs: Sequence[RequestOutput]) -> dict[str, Any]:
        """Return the field `metrics` of a response as a dictionary to merge into it."""
        return request_metrics(
            outputs, self.settings.request_metrics, is_speculative=self.llm.method is not None
        )

    @property
    def is_busy(self) -> bool:
        """Whether the engine has requests."""
        return self.llm.is_running and any(self.llm.num_requests)

    def close(self) -> None:
        """Shut the engine down."""
        self._preparation.close()
        self.llm.shutdown()

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The target's tokenizer.

        Raises:
            ApiError: if there is none.
        """
        tokenizer = self.llm.get_tokenizer()
        if tokenizer is None:
            raise ApiError("this model was loaded without a tokenizer: send prompts of token ids", 501)
        return tokenizer

    def name_of(self, wanted: str | None) -> str:
        """Return the model name for a response.

        Raises:
            ApiError: if the request names another model.
        """
        names = self.model_names
        if wanted is not None and wanted not in names:
            raise ApiError(
                f"there is no model {wanted!r:.200} here; served: {', '.join(names)}",
                404,
                param="model",
                code="model_not_found",
            )
        return wanted or names[0]


def service_of(request: Request) -> Service:
    """Return the service of a request's application."""
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(service_of)]
