"""`POST /tokenize` and `POST /detokenize`, compatible with vLLM."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from specdec_server.errors import ApiError
from specdec_server.openapi import examples
from specdec_server.openapi.document import Group, answering, taking
from specdec_server.protocol.chat import text_messages
from specdec_server.protocol.tokens import DetokenizeRequest, TokenizeRequest
from specdec_server.reading import reading
from specdec_server.sending import json_response
from specdec_server.service import Served, Service
from specdec_server.tools.conversation import check_roles
from specdec_server.turn import template_of

router = APIRouter()


@router.post(
    "/tokenize",
    tags=[Group.TOKENS],
    openapi_extra=taking(TokenizeRequest, examples.TOKENIZE_REQUESTS),
    responses=answering("The token ids, and how many there are.", examples.TOKENS),
)
async def tokenize(body: Annotated[TokenizeRequest, reading(TokenizeRequest)], service: Served) -> Response:
    """Return the tokens of a prompt or of a conversation."""
    return await service.prepared(lambda: _tokens(body, service))


def _tokens(body: TokenizeRequest, service: Service) -> Response:
    service.name_of(body.model)
    if body.messages is not None and body.prompt is None:
        messages = text_messages(body.messages)
        check_roles(messages, template_of(service.tokenizer))
        prompt = service.llm.chat_prompt(
            messages,
            add_generation_prompt=body.add_generation_prompt is not False,
            chat_template_kwargs=dict(service.settings.chat_template_kwargs),
        )
        ids = list(prompt["prompt_token_ids"])
    elif body.messages is None and body.prompt is not None:
        ids = list(
            service.tokenizer(body.prompt, add_special_tokens=body.add_special_tokens is not False)[
                "input_ids"
            ]
        )
    else:
        raise ApiError("give one of prompt and messages")
    found = {
        "count": len(ids),
        "max_model_len": service.llm.target_info.max_model_len,
        "tokens": ids,
        "token_strs": service.tokenizer.convert_ids_to_tokens(ids) if body.return_token_strs else None,
    }
    return json_response(found)


@router.post(
    "/detokenize",
    tags=[Group.TOKENS],
    openapi_extra=taking(DetokenizeRequest, examples.DETOKENIZE_REQUESTS),
    responses=answering("The text.", examples.TEXT),
)
async def detokenize(
    body: Annotated[DetokenizeRequest, reading(DetokenizeRequest)], service: Served
) -> Response:
    """Return the text of tokens."""
    return await service.prepared(lambda: _text(body, service))


def _text(body: DetokenizeRequest, service: Service) -> Response:
    service.name_of(body.model)
    limit = service.llm.target_info.vocab_size
    wrong = next((token for token in body.tokens if not 0 <= token < limit), None)
    if wrong is not None:
        raise ApiError(f"token {wrong} is outside the vocabulary of {limit}", param="tokens")
    return json_response({"prompt": str(service.tokenizer.decode(body.tokens))})
