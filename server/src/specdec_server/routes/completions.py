"""`POST /v1/completions`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from secrets import token_hex
from time import time
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response

from specdec import CompletionOutput, ConfigError, RequestOutput
from specdec_server.draft_steps import DraftSteps
from specdec_server.logprobs import CompletionLogprobs, raw_logprobs
from specdec_server.openapi import examples
from specdec_server.openapi.document import Group, answering, taking
from specdec_server.output_delta import Growth, OutputDelta
from specdec_server.protocol import CompletionRequest
from specdec_server.reading import reading
from specdec_server.running import finished, merged
from specdec_server.sending import sent
from specdec_server.service import Served, Service
from specdec_server.usage import usage

router = APIRouter()


@router.post(
    "/v1/completions",
    tags=[Group.GENERATION],
    openapi_extra=taking(CompletionRequest, examples.COMPLETION_REQUESTS),
    responses=answering("The texts; with `stream`, pieces of them as events.", examples.COMPLETION),
)
async def create_completion(
    body: Annotated[CompletionRequest, reading(CompletionRequest)], request: Request, service: Served
) -> Response:
    """Complete one prompt or several."""
    completion = await service.prepared(lambda: _Completion(body, service))
    return await sent(request, completion, is_streaming=bool(body.stream))


class _Completion:
    """One request to the server, with one engine request per prompt."""

    def __init__(self, body: CompletionRequest, service: Service) -> None:
        self._body = body = body.with_defaults(service.settings.sampling_defaults)
        self._service = service
        name = service.name_of(body.model)
        params = body.to_sampling_params(service.settings.max_logprobs)
        self._num_samples = params.n
        self._id = f"cmpl-{body.request_id or token_hex(12)}"
        self._head = {"id": self._id, "object": "text_completion", "created": int(time()), "model": name}
        prompts = body.prompts
        most = service.settings.limits.max_batch
        if len(prompts) > most:
            raise ConfigError(
                f"prompt has {len(prompts)} prompts, and the server takes {most} at once: send several requests"
            )
        streams = [
            service.generate(prompt, params, f"{self._id}-{place}", body)
            for place, prompt in enumerate(prompts)
        ]
        self._outputs = merged(streams, service, params.n)
        self._choices: dict[tuple[int, int], _Choice] = {}

    async def outputs(self) -> list[RequestOutput]:
        """Return the finished outputs."""
        return await finished(self._outputs)

    def response(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        """Return the body of the response."""
        choices = [
            self._choice(i, output, sample) for i, output in enumerate(outputs) for sample in output.outputs
        ]
        return {**self._head, "choices": choices, **self._totals(outputs)}

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the chunks of a stream."""
        options = self._body.stream_options
        last: dict[int, RequestOutput] = {}
        is_counted = options is not None and options.continuous_usage_stats
        async with aclosing(self._outputs) as news:
            async for place, output in news:
                last[place] = output
                for sample in output.outputs:
                    choice = self._choice(place, output, sample)
                    if choice is not None:
                        so_far = {"usage": self._usage(list(last.values()))} if is_counted else {}
                        yield {**self._head, "choices": [choice], **so_far}
        if options is not None and options.include_usage:
            yield {**self._head, "choices": [], **self._totals([last[place] for place in sorted(last)])}

    def _choice(self, place: int, output: RequestOutput, sample: CompletionOutput) -> dict[str, Any] | None:
        key = (place, sample.index)
        if key not in self._choices:
            number = place * self._num_samples + sample.index
            self._choices[key] = _Choice(number, self._body, self._service)
        return self._choices[key].news(output, sample)

    def _totals(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        return {"usage": self._usage(outputs), **self._service.metrics_of(outputs)}

    def _usage(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        return usage(outputs, is_only_prompt=self._body.is_only_prompt)


class _Choice:
    """One sample as a choice of the response."""

    def __init__(self, number: int, body: CompletionRequest, service: Service) -> None:
        self._number, self._body, self._service = number, body, service
        self._growth = Growth(is_withheld=body.is_only_prompt)
        self._logprobs = CompletionLogprobs(body.logprobs or 0, as_ids=bool(body.return_tokens_as_token_ids))
        self._steps: DraftSteps | None = None
        self._has_begun = False

    def news(self, output: RequestOutput, sample: CompletionOutput) -> dict[str, Any] | None:
        """Return the new part as a choice of a response or of a stream chunk; None if there is nothing new."""
        delta = self._growth.take(sample)
        if delta is None:
            return None
        ids, is_first, self._has_begun = list(delta.token_ids), not self._has_begun, True
        echoed = self._echoed(output) if self._body.echo else ""
        choice: dict[str, Any] = {
            "index": self._number,
            "text": echoed + delta.text if is_first else delta.text,
            "logprobs": self._logprobs_of(output, sample, delta, echoed, is_first=is_first),
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        if is_first and self._body.prompt_logprobs is not None:
            choice["prompt_logprobs"] = raw_logprobs(output.prompt_logprobs)
        if self._body.return_token_ids:
            choice["token_ids"] = ids
            choice["prompt_token_ids"] = output.prompt_token_ids if is_first else None
        if delta.draft_steps is not None:
            if self._steps is None:
                self._steps = DraftSteps(
                    self._service.llm.get_tokenizer(),
                    output.prompt_token_ids,
                    skip_special_tokens=self._body.skip_special_tokens is not False,
                )
            choice["draft_steps"] = self._steps.to_json(delta)
        return choice

    def _echoed(self, output: RequestOutput) -> str:
        is_whole = output.prompt is not None and self._body.truncate_prompt_tokens is None
        return output.prompt if is_whole and output.prompt else self._text_of(output.prompt_token_ids)

    def _logprobs_of(
        self,
        output: RequestOutput,
        sample: CompletionOutput,
        delta: OutputDelta,
        echoed: str,
        *,
        is_first: bool,
    ) -> dict[str, Any] | None:
        if self._body.logprobs is None:
            return None
        found: dict[str, Any] = {}
        prompt = output.prompt_token_ids
        if is_first and self._body.echo and output.prompt_logprobs is not None:
            first = self._text_of(prompt[:1])
            found = self._logprobs.of_prompt(first, prompt, output.prompt_logprobs, echoed)
        end = None if sample.finish_reason is None else len(echoed) + len(sample.text)
        logprobs = self._logprobs(delta.token_ids, delta.logprobs or [], end)
        return {key: found.get(key, []) + values for key, values in logprobs.items()}

    def _text_of(self, ids: list[int]) -> str:
        return str(self._service.tokenizer.decode(ids))
