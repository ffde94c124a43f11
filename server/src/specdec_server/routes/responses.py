"""`POST /v1/responses`, and access to stored responses."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from secrets import token_hex
from time import time
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response

from specdec import RequestOutput
from specdec_server.data_parallel.conversation import response_prefix
from specdec_server.errors import error_body
from specdec_server.openapi import examples
from specdec_server.openapi.document import Group, answering, taking
from specdec_server.output_delta import Growth
from specdec_server.protocol.responses import ResponsesRequest
from specdec_server.reading import reading
from specdec_server.responses import ResponseStore
from specdec_server.responses.items import messages_of
from specdec_server.responses.output import Output, copied
from specdec_server.running import finished, merged
from specdec_server.sending import json_response, sent
from specdec_server.service import Served, Service
from specdec_server.threads import in_thread
from specdec_server.turn import Turn, TurnRequest
from specdec_server.usage import usage

logger = logging.getLogger("specdec")
router = APIRouter()


def _store_of(request: Request) -> ResponseStore:
    store: ResponseStore = request.app.state.responses
    return store


@router.post(
    "/v1/responses",
    tags=[Group.GENERATION],
    openapi_extra=taking(ResponsesRequest, examples.RESPONSE_REQUESTS),
    responses=answering("The response; with `stream`, events of OpenAI's kinds.", examples.RESPONSE),
)
async def create_response(
    body: Annotated[ResponsesRequest, reading(ResponsesRequest)], request: Request, service: Served
) -> Response:
    """Generate a response and store it for later requests."""
    store = _store_of(request)
    answer = await service.prepared(lambda: _Answer(body, service, store))
    return await sent(request, answer, is_streaming=bool(body.stream), has_named_events=True)


@router.get(
    "/v1/responses/{response_id}",
    tags=[Group.STORED],
    responses=answering("The response as it was.", examples.RESPONSE),
)
async def retrieve_response(response_id: str, request: Request, service: Served) -> Response:
    """Return a stored response."""
    stored = _store_of(request).get(response_id, service.owner)
    return await in_thread(json_response, stored.response)


@router.delete(
    "/v1/responses/{response_id}",
    tags=[Group.STORED],
    responses=answering("It is gone.", examples.DELETED),
)
async def delete_response(response_id: str, request: Request, service: Served) -> dict[str, Any]:
    """Delete a stored response."""
    _store_of(request).delete(response_id, service.owner)
    return {"id": response_id, "object": "response", "deleted": True}


class _Answer:
    """One request to the server and its engine request."""

    def __init__(self, body: ResponsesRequest, service: Service, store: ResponseStore) -> None:
        self._body = body = body.with_defaults(service.settings.sampling_defaults)
        self._service, self._store = service, store
        self._owner = service.owner
        name = service.name_of(body.model)
        before: tuple[dict[str, Any], ...] = ()
        if body.previous_response_id is not None:
            before = store.get(body.previous_response_id, self._owner, is_previous=True).messages
        self._messages = [*before, *messages_of(body.input)]
        said = [{"role": "system", "content": body.instructions}] if body.instructions else []
        params, effort = body.to_sampling_params(), None if body.reasoning is None else body.reasoning.effort
        arguments = {"chat_template_kwargs": body.chat_template_kwargs}
        self._turn = Turn(
            TurnRequest([*said, *self._messages], body.choice, params, arguments, effort), service
        )
        self._head = self._head_of(
            f"{response_prefix(service.settings.engine)}{body.request_id or token_hex(24)}", name
        )
        params = self._turn.params
        stream = service.generate(self._turn.prompt, params, self._head["id"], body)
        self._outputs = merged([stream], service, params.n)
        self._parser = self._turn.parser()
        self._output = Output(self._parser)

    async def outputs(self) -> list[RequestOutput]:
        """Return the finished output."""
        return await finished(self._outputs)

    def response(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        """Return the body of the response."""
        (output,) = outputs
        self._output.add([*self._parser.feed(output.outputs[0].text), *self._parser.end()])
        return self._ended(output)[1]

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events of a stream, numbered."""
        number = 0
        async with aclosing(self._events()) as events:
            async for event in events:
                yield {"type": event["type"], "sequence_number": number, **event}
                number += 1

    async def _events(self) -> AsyncGenerator[dict[str, Any], None]:
        started = {**self._head, "status": "in_progress", "output": []}
        yield {"type": "response.created", "response": started}
        yield {"type": "response.in_progress", "response": started}
        growth = Growth()
        try:
            async with aclosing(self._outputs) as news:
                async for _, output in news:
                    delta = growth.take(output.outputs[0])
                    if delta is None:
                        continue
                    found = self._parser.feed(delta.text)
                    if delta.finish_reason is not None:
                        found += self._parser.end()
                    for event in self._output.add(found):
                        yield event
            events, response = await in_thread(self._ended, output)
        except Exception as error:  # the status is already sent, so an event reports the error
            details = error_body(error)["error"]
            if details["type"] == "internal_error":
                logger.exception("a stream ends with an error")
            failure = {"code": "server_error", "message": details["message"]}
            yield {"type": "response.failed", "response": {**started, "status": "failed", "error": failure}}
            return
        for event in events:
            yield event
        yield {"type": f"response.{response['status']}", "response": response}

    def _ended(self, output: RequestOutput) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the last events and the response; store the response unless `store` is false."""
        sample = output.outputs[0]
        is_cut = sample.finish_reason == "length"
        status = "failed" if sample.is_refused else "incomplete" if is_cut else "completed"
        events = self._output.close("completed" if status == "completed" else "incomplete")
        response = {
            **self._head,
            "status": status,
            "error": {"code": "invalid_prompt", "message": sample.stop_reason} if sample.is_refused else None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "completed_at": int(time()) if status == "completed" else None,
            "output": [copied(item) for item in self._output.items],
            "usage": self._usage(output),
            **self._service.metrics_of([output]),
        }
        if self._body.store is not False:
            self._store.put(response, [*self._messages, *messages_of(response["output"])], self._owner)
        return events, response

    def _usage(self, output: RequestOutput) -> dict[str, Any]:
        counted = usage([output])
        thought = counted["completion_tokens_details"]["reasoning_tokens"]
        return {
            "input_tokens": counted["prompt_tokens"],
            "input_tokens_details": counted["prompt_tokens_details"],
            "output_tokens": counted["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": counted["total_tokens"],
        }

    def _head_of(self, name: str, model: str) -> dict[str, Any]:
        """Return the fields of a response that are known from the start."""
        body, params = self._body, self._turn.params
        text = {"format": {"type": "text"}}
        if body.text is not None:
            text |= body.text.model_dump(by_alias=True, exclude_none=True)
        return {
            "id": name,
            "object": "response",
            "created_at": int(time()),
            "model": model,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "previous_response_id": body.previous_response_id,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "reasoning": None if body.reasoning is None else body.reasoning.model_dump(exclude_none=True),
            "store": body.store is not False,
            "temperature": params.temperature,
            "text": text,
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_p": params.top_p,
            "truncation": "disabled",
            "background": False,
            "usage": None,
        }
