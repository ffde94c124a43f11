"""OpenAI's Responses API: input items, output items and stored responses."""

from specdec_server.responses.store import ResponseStore

__all__ = ["ResponseStore"]
