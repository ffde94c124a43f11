"""`POST /tokenize` and `POST /detokenize`, as vLLM has them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends

from specdec_server.errors import ApiError
from specdec_server.protocol.chat import text_messages
from specdec_server.protocol.tokens import DetokenizeRequest, TokenizeRequest
from specdec_server.service import Served, check_key

router = APIRouter(dependencies=[Depends(check_key)])


@router.post("/tokenize")
async def tokenize(body: TokenizeRequest, service: Served) -> dict[str, Any]:
    """Return the tokens of a prompt or of a conversation."""
    service.name_of(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise ApiError("give one of prompt and messages")
    tokenizer = service.tokenizer
    if body.messages is not None:
        messages = text_messages(body.messages)
        arguments = {"add_generation_prompt": body.add_generation_prompt}
        ids = service.llm.chat_prompt(messages, **arguments)["prompt_token_ids"]
    else:
        ids = tokenizer(body.prompt, add_special_tokens=body.add_special_tokens)["input_ids"]
    return {
        "count": len(ids),
        "max_model_len": service.llm.target_info.max_model_len,
        "tokens": ids,
        "token_strs": tokenizer.convert_ids_to_tokens(ids) if body.return_token_strs else None,
    }


@router.post("/detokenize")
async def detokenize(body: DetokenizeRequest, service: Served) -> dict[str, str]:
    """Return the text of tokens."""
    service.name_of(body.model)
    limit = service.llm.target_info.vocab_size
    wrong = [token for token in body.tokens if not 0 <= token < limit]
    if wrong:
        raise ApiError(f"token {wrong[0]} is outside the vocabulary of {limit}", param="tokens")
    return {"prompt": str(service.tokenizer.decode(body.tokens))}
