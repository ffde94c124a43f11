"""GGUF files as models: part `gguf` of specdec."""

from specdec_runtime.gguf.files import GgufFiles

__all__ = ["GgufFiles"]
