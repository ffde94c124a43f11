"""Serves specdec over HTTP, with the OpenAI interface."""

from specdec_server.app import create_app
from specdec_server.settings import Settings

__all__ = ["Settings", "create_app"]
