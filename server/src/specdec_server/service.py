"""The engine and what requests to it have in common."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import Depends, Request
from transformers import PreTrainedTokenizerBase

from specdec import AsyncLLM
from specdec_server.errors import ApiError
from specdec_server.settings import Settings
from specdec_server.telemetry import Telemetry


class Service:
    """An engine that is served.

    Args:
        llm: the engine.
        settings: how to answer.
    """

    def __init__(self, llm: AsyncLLM, settings: Settings) -> None:
        self.llm, self.settings = llm, settings
        self.telemetry = Telemetry(llm.get_metrics, settings.model_names[0])

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
        """Return the name that a response gives the model.

        Raises:
            ApiError: if a request wants another model.
        """
        names = self.settings.model_names
        if wanted is not None and wanted not in names:
            raise ApiError(
                f"there is no model {wanted!r} here; served: {', '.join(names)}",
                404,
                param="model",
                code="model_not_found",
            )
        return wanted or names[0]


def service_of(request: Request) -> Service:
    """Return the service of the application that has a request."""
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(service_of)]


def check_key(request: Request, service: Served) -> None:
    """Let only those in who have the key, where there is one.

    Raises:
        ApiError: for everybody else.
    """
    key = service.settings.api_key
    if key is None:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), key.encode()):
        raise ApiError(
            "the key is missing or wrong: send 'Authorization: Bearer KEY'", 401, code="invalid_api_key"
        )
