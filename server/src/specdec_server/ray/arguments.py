"""Arguments of the application: Ray's, the server's, and those of `LLM`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specdec import ConfigError

VARIABLE = "SPECDEC_RAY_ARGS"
"""Environment variable with arguments as JSON; arguments from Ray take precedence."""


class RayArguments(BaseModel):
    """Arguments of the application; all others are arguments of `LLM`."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    model: str = "zoo"
    served_model_name: str | None = None
    """Name of the model in requests; None uses `model`."""
    api_key: str | None = Field(default_factory=lambda: os.environ.get("SPECDEC_API_KEY"), repr=False)
    chat_template: str | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None

    num_replicas: int | None = Field(None, ge=1)
    """A fixed number of replicas; None uses `min_replicas` and `max_replicas`."""
    min_replicas: int = Field(1, ge=0)
    max_replicas: int | None = Field(None, ge=1)
    """Maximum replicas with autoscaling; None disables autoscaling, with one replica unless `num_replicas` is set."""
    target_ongoing_requests: float = Field(16, gt=0)
    """Autoscaling target of requests per replica."""
    max_ongoing_requests: int = Field(256, ge=1)
    """Maximum concurrent requests of a replica; further ones wait in Ray's proxy."""
    max_queued_requests: int = Field(-1, ge=-1)
    """Maximum requests that wait there, -1 for no bound; further ones are rejected with status 503."""
    num_cpus: float = Field(1, ge=0)
    """CPUs that Ray reserves for each replica, and torch's number of threads in it."""
    num_gpus: float = Field(0, ge=0)
    graceful_shutdown_timeout_s: float = Field(120, gt=0)
    """Seconds that requests have to finish when their replica is replaced or removed."""
    health_check_period_s: float = Field(5, gt=0)

    @property
    def of_llm(self) -> dict[str, Any]:
        """The arguments of `LLM`."""
        return dict(self.model_extra or {})

    @property
    def scale(self) -> dict[str, Any]:
        """The number of replicas, as options of a deployment."""
        if self.max_replicas is None:
            return {"num_replicas": self.num_replicas or 1}
        return {
            "autoscaling_config": {
                "min_replicas": self.min_replicas,
                "max_replicas": self.max_replicas,
                "target_ongoing_requests": self.target_ongoing_requests,
            }
        }


def read_arguments(given: Mapping[str, Any]) -> RayArguments:
    """Return Ray's arguments, completed from the environment; texts that are JSON are parsed as JSON.

    Raises:
        ConfigError: naming the one that is wrong.
    """
    text = os.environ.get(VARIABLE, "{}")
    try:
        inherited = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{VARIABLE} {text!r} is not JSON: {error}") from None
    if not isinstance(inherited, dict):
        raise ConfigError(f"{VARIABLE}: give an object of arguments and values, not {text}")
    named = {name.replace("-", "_"): value for name, value in {**inherited, **given}.items()}
    try:
        found = RayArguments(**{name: _value(name, value) for name, value in named.items()})
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"{'.'.join(map(str, first['loc']))} = {first['input']!r}: {first['msg']}"
        ) from None
    _check_scale(found)
    return found


def _check_scale(found: RayArguments) -> None:
    if found.max_replicas is None:
        idle = sorted({"min_replicas", "target_ongoing_requests"} & found.model_fields_set)
        if idle:
            raise ConfigError(
                f"{idle[0]} belongs to autoscaling: give max_replicas as well, or num_replicas instead"
            )
        return
    if found.num_replicas is not None:
        raise ConfigError("num_replicas and max_replicas are two ways to say one thing: give one")
    if found.max_replicas < found.min_replicas:
        raise ConfigError(f"max_replicas = {found.max_replicas} is below min_replicas = {found.min_replicas}")


def _value(name: str, given: Any) -> Any:
    field = RayArguments.model_fields.get(name)
    is_text = field is not None and field.annotation in (str, str | None)
    if is_text or not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError:
        return given
