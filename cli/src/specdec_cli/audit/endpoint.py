"""Client of a server with the OpenAI interface."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from specdec import ConfigError
from specdec_cli.audit.answer import Answer, read_choice
from specdec_cli.audit.drafting import Drafting, read_metrics, read_reply
from specdec_cli.bench.lines import parsed


class RefusedError(ConfigError):
    """A server rejected a request with status 400 or 422, for example because of an unknown field."""


@dataclass(frozen=True)
class Reply:
    """The answer to one request: its samples and its draft counts."""

    answers: tuple[Answer, ...]
    drafting: Drafting | None


class Endpoint:
    """One model of one server.

    Args:
        client: HTTP client for requests.
        url: of the server, with or without `/v1`.
        model: model name in requests; None uses the first one that the server lists.

    Raises:
        ConfigError: if the address is invalid.
    """

    def __init__(self, client: httpx2.AsyncClient, url: str, model: str | None) -> None:
        if not re.fullmatch(r"https?://[^/\s]+(/\S*)?", url):
            raise ConfigError(
                f"{url!r} is not the address of a server: give one such as http://127.0.0.1:8000"
            )
        self.url = re.sub(r"(/v1)?/*$", "", url.rstrip("/"))
        self.model = model or ""
        self.num_answered = 0
        self._client = client

    async def connect(self) -> None:
        """Find the model.

        Raises:
            ConfigError: if there is no such server or model.
        """
        listed = await self._json("GET", "/v1/models")
        names = [str(card.get("id")) for card in listed.get("data") or ()]
        if not names:
            raise ConfigError(f"{self.url}/v1/models lists no model")
        if self.model and self.model not in names:
            raise ConfigError(f"there is no model {self.model!r} at {self.url}; served: {', '.join(names)}")
        self.model = self.model or names[0]

    async def complete(self, body: Mapping[str, Any]) -> Reply:
        """Return the answer to a request for a completion.

        Raises:
            RefusedError: if the server rejects the request.
            ConfigError: if it does not answer, or not in OpenAI's format.
        """
        answer = await self._json("POST", "/v1/completions", {"model": self.model, **body})
        try:
            choices = sorted(answer["choices"], key=lambda choice: choice.get("index", 0))
            return Reply(tuple(map(read_choice, choices)), read_reply(answer))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{self.url}/v1/completions does not answer in OpenAI's form: {type(error).__name__}: {error}"
            ) from None

    async def chat(self, body: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of a streamed answer to a conversation as they arrive.

        Raises:
            RefusedError: if the server rejects the request.
            ConfigError: if it does not answer, or not in OpenAI's format.
        """
        path, whole = "/v1/chat/completions", {"model": self.model, "stream": True, **body}
        try:
            async with self._client.stream("POST", self.url + path, json=whole) as response:
                if response.is_error:
                    await response.aread()
                    _check(response, self.url + path)
                async for line in response.aiter_lines():
                    data = line.removeprefix("data:").strip()
                    if line.startswith("data:") and data != "[DONE]":
                        event = parsed(data, self.url + path)
                        if not isinstance(event, dict) or "error" in event:
                            raise ConfigError(f"{self.url}{path} ends a stream with {data[:200]}")
                        yield event
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise ConfigError(self._silence(error)) from None
        self.num_answered += 1

    async def drafting(self) -> Drafting | None:
        """Return the draft counts in `/metrics` since the server started; None if they are missing."""
        try:
            found = await self._client.get(f"{self.url}/metrics")
        except httpx2.TransportError:
            return None
        return read_metrics(found.text) if found.status_code == httpx2.codes.OK else None

    async def _json(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            response = await self._client.request(verb, self.url + path, json=body)
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise ConfigError(self._silence(error)) from None
        _check(response, self.url + path)
        try:
            found = response.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ConfigError(
                f"{self.url}{path} does not answer with JSON: is it a server with the OpenAI interface?"
            )
        self.num_answered += 1
        return found

    def _silence(self, error: Exception) -> str:
        why = str(error) or type(error).__name__
        if isinstance(error, httpx2.TimeoutException):
            return f"{self.url} does not answer in time ({type(error).__name__}): raise --timeout, or lower --concurrency"
        if not self.num_answered:
            return f"nobody answers at {self.url} ({why}): is the server running?"
        return f"{self.url} stopped answering after {self.num_answered} answers ({why}): see its log, then start again"


def _check(response: httpx2.Response, url: str) -> None:
    """Raise for a response that is an error."""
    if response.is_error:
        kind = RefusedError if response.status_code in (400, 422) else ConfigError
        raise kind(f"{url} answers {response.status_code}: {_message(response)}{_remedy(response)}")


def _message(response: httpx2.Response) -> str:
    try:
        reported = response.json()
        error = reported.get("error", reported.get("detail", reported))
        return str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, AttributeError):
        return response.text[:200] or response.reason_phrase


def _remedy(response: httpx2.Response) -> str:
    if response.status_code in (401, 403):
        return "; give its key as --api-key"
    return "; lower --concurrency" if response.status_code == httpx2.codes.TOO_MANY_REQUESTS else ""
