"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from secrets import token_hex
from time import time
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response

from specdec import CompletionOutput, RequestOutput
from specdec_server.draft_steps import DraftSteps
from specdec_server.logprobs import chat_logprobs, raw_logprobs
from specdec_server.message import Message, MessageParser, deltas
from specdec_server.openapi import examples
from specdec_server.openapi.document import Group, answering, taking
from specdec_server.output_delta import Growth, OutputDelta
from specdec_server.protocol import ChatRequest
from specdec_server.reading import reading
from specdec_server.running import finished, merged
from specdec_server.sending import sent
from specdec_server.service import Served, Service
from specdec_server.tools import CallStart
from specdec_server.turn import Turn, TurnRequest
from specdec_server.usage import usage

router = APIRouter()


@router.post(
    "/v1/chat/completions",
    tags=[Group.GENERATION],
    openapi_extra=taking(ChatRequest, examples.CHAT_REQUESTS),
    responses=answering("The message; with `stream`, chunks of it as events.", examples.CHAT),
)
async def create_chat_completion(
    body: Annotated[ChatRequest, reading(ChatRequest)], request: Request, service: Served
) -> Response:
    """Generate the next message of a conversation."""
    chat = await service.prepared(lambda: _Chat(body, service))
    return await sent(request, chat, is_streaming=bool(body.stream))


class _Chat:
    """One request to the server and its engine request."""

    def __init__(self, body: ChatRequest, service: Service) -> None:
        self._body = body = body.with_defaults(service.settings.sampling_defaults)
        self._service = service
        name = service.name_of(body.model)
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{body.request_id or token_hex(12)}",
            "created": int(time()),
            "model": name,
        }
        self._turn = Turn(
            TurnRequest(
                body.conversation,
                body.choice,
                body.to_sampling_params(service.settings.max_logprobs),
                body.template_arguments,
                body.reasoning_effort,
                shows_reasoning=body.include_reasoning is not False,
            ),
            service,
        )
        params = self._turn.params
        stream = service.generate(self._turn.prompt, params, self._head["id"], body)
        self._outputs = merged([stream], service, params.n)
        self._samples: dict[int, _Sample] = {}

    async def outputs(self) -> list[RequestOutput]:
        """Return the finished output."""
        return await finished(self._outputs)

    def response(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        """Return the body of the response."""
        (output,) = outputs
        choices = []
        for sample in output.outputs:
            delta, parser, message = Growth().take(sample), self._turn.parser(), Message()
            assert delta is not None
            message.add([*parser.feed(delta.text), *parser.end()], parser)
            choice = self._choice(sample.index, "message", message.as_chat(), delta, len(message.calls))
            choices.append(choice | _steps_of(self._draft_steps(), delta))
        return {
            **self._head,
            "object": "chat.completion",
            "choices": choices,
            **self._prompt_of(output),
            **self._totals(output),
        }

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the chunks of a stream."""
        options = self._body.stream_options
        head = {**self._head, "object": "chat.completion.chunk"}
        output = None
        is_counted = options is not None and options.continuous_usage_stats
        async with aclosing(self._outputs) as news:
            async for _, output in news:
                extra = {} if self._samples else self._prompt_of(output)
                for sample in output.outputs:
                    for choice in self._news_of(sample):
                        if is_counted:
                            extra["usage"] = usage([output])
                        yield {**head, "choices": [choice], **extra}
                        extra = {}
        if output is not None and options is not None and options.include_usage:
            yield {**head, "choices": [], **self._totals(output)}

    def _news_of(self, sample: CompletionOutput) -> list[dict[str, Any]]:
        """Return the choices with the new part of a sample; the first choice of a sample has the role."""
        index, choices = sample.index, []
        nothing = OutputDelta("", [], None, None, None)
        if index not in self._samples:
            self._samples[index] = _Sample(self._turn.parser(), self._draft_steps())
            choices.append(self._choice(index, "delta", {"role": "assistant", "content": ""}, nothing))
        state = self._samples[index]
        delta, found = state.news(sample)
        if delta is not None:
            *before, last = found or [{}]
            news = [self._choice(index, "delta", message, nothing) for message in before]
            news.append(self._choice(index, "delta", last, delta, state.num_calls))
            news[0] |= _steps_of(state.draft_steps, delta)  # before the text that they generated
            choices += news
        return choices

    def _draft_steps(self) -> DraftSteps | None:
        params = self._turn.params
        if not params.return_draft_steps:
            return None
        prompt = self._turn.prompt["prompt_token_ids"]
        return DraftSteps(self._service.tokenizer, prompt, skip_special_tokens=params.skip_special_tokens)

    def _choice(
        self, index: int, kind: str, message: dict[str, Any], delta: OutputDelta, num_calls: int = 0
    ) -> dict[str, Any]:
        logprobs = None
        if delta.logprobs is not None:
            logprobs = chat_logprobs(
                delta.token_ids,
                delta.logprobs,
                self._body.top_logprobs or 0,
                as_ids=bool(self._body.return_tokens_as_token_ids),
            )
        ids = {"token_ids": list(delta.token_ids)} if self._body.return_token_ids else {}
        return {
            "index": index,
            kind: message,
            "logprobs": logprobs,
            "finish_reason": self._turn.finish_reason(delta.finish_reason, num_calls),
            "stop_reason": delta.stop_reason,
            **ids,
        }

    def _prompt_of(self, output: RequestOutput) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._body.prompt_logprobs is not None:
            found["prompt_logprobs"] = raw_logprobs(output.prompt_logprobs)
        if self._body.return_token_ids:
            found["prompt_token_ids"] = output.prompt_token_ids
        return found

    def _totals(self, output: RequestOutput) -> dict[str, Any]:
        return {"usage": usage([output]), **self._service.metrics_of([output])}


class _Sample:
    """State of the stream of one sample.

    Args:
        parser: of its text.
        draft_steps: reports its steps; None if not requested.
    """

    def __init__(self, parser: MessageParser, draft_steps: DraftSteps | None) -> None:
        self.growth = Growth()
        self.draft_steps = draft_steps
        self.num_calls = 0
        self._parser = parser
        self._held: OutputDelta | None = None
        """What belongs to text that the parser holds: tokens, log probabilities, steps."""

    def news(self, sample: CompletionOutput) -> tuple[OutputDelta | None, list[dict[str, Any]]]:
        """Return the new part of a sample and its deltas; None while the parser holds its text."""
        delta = self.growth.take(sample)
        if delta is None:
            return None, []
        if self._held is not None:
            delta = self._held.joined(delta)
        self._held = None
        events = self._parser.feed(delta.text)
        if delta.finish_reason is not None:
            events += self._parser.end()
        elif not events:
            self._held = replace(delta, text="")
            return None, []
        self.num_calls += sum(isinstance(event, CallStart) for event in events)
        return delta, deltas(events, self._parser)


def _steps_of(steps: DraftSteps | None, delta: OutputDelta) -> dict[str, Any]:
    return {} if steps is None else {"draft_steps": steps.to_json(delta)}
