"""Health, version, models and metrics of the server."""

from __future__ import annotations

from time import time
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from specdec import __version__
from specdec_server.openapi import examples
from specdec_server.openapi.document import Group, answering
from specdec_server.service import Served, Service

router = APIRouter()
_STARTED = int(time())


@router.get(
    "/health",
    tags=[Group.MONITORING],
    responses={200: {"description": "The engine runs."}, 503: {"description": "It does not."}},
)
@router.head("/health", include_in_schema=False)
@router.get("/ping", include_in_schema=False)
async def health(service: Served) -> Response:
    """Return 200 while the engine runs, else 503."""
    return Response(status_code=200 if service.llm.is_running else 503)


@router.get("/load", tags=[Group.MONITORING], responses=answering("The number.", examples.LOAD))
async def load(service: Served) -> dict[str, int]:
    """Return how many requests for text are being answered."""
    return {"server_load": service.load}


@router.post(
    "/reset_prefix_cache",
    tags=[Group.MONITORING],
    responses=answering("Whether it was done.", examples.RESET),
)
async def reset_prefix_cache(service: Served, reset_running_requests: bool = False) -> dict[str, bool]:
    """Forget all cached prefixes; while requests run only with `reset_running_requests=true`, and they keep what they have."""
    return {"success": await service.llm.reset_prefix_cache(reset_running_requests)}


@router.get("/version", tags=[Group.MONITORING], responses=answering("The version.", examples.VERSION))
async def version() -> dict[str, str]:
    """Return the version of specdec."""
    return {"version": __version__}


@router.get(
    "/server_info",
    tags=[Group.MODELS],
    responses=answering("Model and method.", examples.SERVER_INFO),
)
async def server_info(service: Served) -> dict[str, Any]:
    """Return the served model, whether it has a chat template, and the speculative configuration."""
    llm, settings = service.llm, service.settings
    tokenizer, config = llm.get_tokenizer(), llm.speculative_config
    return {
        "version": __version__,
        "model": settings.model_names[0],
        "root": settings.root or settings.model_names[0],
        "max_model_len": llm.target_info.max_model_len,
        "dtype": str(llm.target_info.dtype).removeprefix("torch."),
        "device": str(llm.target_info.device),
        "has_docs": settings.are_docs_served,
        "has_chat_template": tokenizer is not None and tokenizer.chat_template is not None,
        "speculative_config": None
        if config is None
        else {
            "method": config.method,
            "num_speculative_tokens": config.num_speculative_tokens,
            "rejection_sample_method": config.rejection_sample_method,
        },
    }


@router.get(
    "/metrics",
    tags=[Group.MONITORING],
    responses=answering("One line for each value.", examples.METRICS, "text/plain"),
    response_class=PlainTextResponse,
)
async def metrics(service: Served) -> Response:
    """Return metrics in Prometheus' text format."""
    return Response(service.telemetry.text(), media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/models", tags=[Group.MODELS], responses=answering("The names.", examples.MODELS))
async def models(service: Served) -> dict[str, Any]:
    """List the names that requests may use as `model`."""
    return {"object": "list", "data": [_card(name, service) for name in service.model_names]}


@router.get("/v1/models/{name:path}", tags=[Group.MODELS], responses=answering("The model.", examples.MODEL))
async def model(name: str, service: Served) -> dict[str, Any]:
    """Describe one model."""
    return _card(service.name_of(name), service)


def _card(name: str, service: Service) -> dict[str, Any]:
    model, adapters = service.settings.model_names[0], service.llm.lora_modules
    return {
        "id": name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "specdec",
        "root": adapters.get(name, service.settings.root or model),
        "parent": model if name in adapters else None,
        "max_model_len": service.llm.target_info.max_model_len,
    }
