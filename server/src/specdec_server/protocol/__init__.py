"""Request bodies of the server."""

from specdec_server.protocol.chat import ChatRequest
from specdec_server.protocol.completion import CompletionRequest
from specdec_server.protocol.generation import GenerationRequest

__all__ = ["ChatRequest", "CompletionRequest", "GenerationRequest"]
