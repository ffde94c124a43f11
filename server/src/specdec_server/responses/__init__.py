"""OpenAI's interface of responses: items in, items out, and what is kept of both."""

from specdec_server.responses.store import ResponseStore

__all__ = ["ResponseStore"]
