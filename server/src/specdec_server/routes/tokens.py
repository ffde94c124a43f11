"""`POST /tokenize` and `POST /detokenize`, compatible with vLLM."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from specdec_server.errors import ApiError
from specdec_server.protocol.chat import text_messages
from specdec_server.protocol.tokens import DetokenizeRequest, TokenizeRequest
from specdec_server.service import Served, Service

router = APIRouter()


@router.post("/tokenize")
async def tokenize(body: TokenizeRequest, service: Served) -> dict[str, Any]:
    """Return the tokens of a prompt or of a conversation."""
    service.name_of(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise ApiError("give one of prompt and messages")
    ids = await service.prepared(lambda: _ids(body, service))
    return {
        "count": len(ids),
        "max_model_len": service.llm.target_info.max_model_len,
        "tokens": ids,
        "token_strs": service.tokenizer.convert_ids_to_tokens(ids) if body.return_token_strs else None,
    }


def _ids(body: TokenizeRequest, service: Service) -> list[int]:
    if body.messages is None:
        return list(service.tokenizer(body.prompt, add_special_tokens=body.add_special_tokens)["input_ids"])
    messages = text_messages(body.messages)
    prompt = service.llm.chat_prompt(messages, add_generation_prompt=body.add_generation_prompt)
    return list(prompt["prompt_token_ids"])


@router.post("/detokenize")
async def detokenize(body: DetokenizeRequest, service: Served) -> dict[str, str]:
    """Return the text of tokens."""
    service.name_of(body.model)
    limit = service.llm.target_info.vocab_size
    wrong = [token for token in body.tokens if not 0 <= token < limit]
    if wrong:
        raise ApiError(f"token {wrong[0]} is outside the vocabulary of {limit}", param="tokens")
    return {"prompt": str(service.tokenizer.decode(body.tokens))}
