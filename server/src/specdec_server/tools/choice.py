"""The fields `tools`, `tool_choice` and `parallel_tool_calls` of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specdec import ConfigError
from specdec_server.tools.tool import NO_PARAMETERS, Tool

_NAME = re.compile(r"[\w.\-]{1,128}")
MAX_TOOLS = 512


@dataclass(frozen=True)
class ToolChoice:
    """Which tools the model may call, and whether it must."""

    tools: tuple[Tool, ...] = ()
    """Tools listed in the prompt."""
    mode: Literal["none", "auto", "required", "named"] = "none"
    allowed: tuple[Tool, ...] = ()
    """Tools that the model may call: the named one, or all."""
    is_parallel: bool = True

    @property
    def is_forced(self) -> bool:
        """Whether the message must be a call."""
        return self.mode in ("required", "named")

    @property
    def max_calls(self) -> int | None:
        """Maximum number of calls; None for any number."""
        return None if self.is_parallel and self.mode != "named" else 1


def tool_choice_of(
    tools: Sequence[Mapping[str, Any]] | None, choice: str | Mapping[str, Any] | None, parallel: bool | None
) -> ToolChoice:
    """Return the tool choice of a request.

    Args:
        tools: functions, in the format of chat completions or of responses.
        choice: `none`, `auto`, `required`, a function, or allowed tools.
        parallel: whether several calls are allowed; None for yes.

    Raises:
        ConfigError: naming what is wrong.
    """
    found = tuple(_tool_of(place, given) for place, given in enumerate(tools or ()))
    if len(found) > MAX_TOOLS:
        raise ConfigError(f"tools: {len(found)} are more than {MAX_TOOLS}: send fewer")
    by_name = {tool.name: tool for tool in found}
    if len(by_name) < len(found):
        raise ConfigError("tools: two have the same name; give each its own")
    if not found:
        if choice not in (None, "none", "auto"):
            raise ConfigError("tool_choice needs tools")
        return ToolChoice()
    is_parallel = parallel is not False
    if choice is None or choice == "auto":
        return ToolChoice(found, "auto", found, is_parallel)
    if choice == "none":
        return ToolChoice(found)
    if choice == "required":
        return ToolChoice(found, "required", found, is_parallel)
    if not isinstance(choice, Mapping):
        raise ConfigError(f"tool_choice: {choice!r} is none of 'none', 'auto', 'required' and a function")
    if choice.get("type") == "allowed_tools":
        return _allowed(choice, found, by_name, is_parallel)
    return ToolChoice(found, "named", (_named(choice, by_name),), is_parallel=False)


def _allowed(
    choice: Mapping[str, Any], found: tuple[Tool, ...], by_name: Mapping[str, Tool], is_parallel: bool
) -> ToolChoice:
    inner = choice.get("allowed_tools", choice)
    mode, names = (inner.get("mode"), inner.get("tools")) if isinstance(inner, Mapping) else (None, None)
    if mode not in ("auto", "required") or not isinstance(names, list) or not names:
        raise ConfigError(
            "tool_choice: allowed_tools needs a mode, 'auto' or 'required', and a list of tools"
        )
    allowed = tuple(_named(name, by_name) for name in names)
    return ToolChoice(allowed, mode, allowed, is_parallel)


def _named(choice: object, by_name: Mapping[str, Tool]) -> Tool:
    if not isinstance(choice, Mapping) or choice.get("type") != "function":
        kind = choice.get("type") if isinstance(choice, Mapping) else choice
        raise ConfigError(f"tool_choice: {kind!r} is not supported: name a function")
    function = choice.get("function", choice)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or name not in by_name:
        raise ConfigError(f"tool_choice: {name!r} is none of the tools: {', '.join(by_name)}")
    return by_name[name]


def _tool_of(place: int, given: Mapping[str, Any]) -> Tool:
    kind = given.get("type")
    if kind != "function":
        raise ConfigError(f"tools[{place}]: type {kind!r} is not supported: only functions are")
    function = given.get("function", given)
    if not isinstance(function, Mapping):
        raise ConfigError(f"tools[{place}]: 'function' is not an object")
    name, description, parameters = (function.get(key) for key in ("name", "description", "parameters"))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"tools[{place}]: the name must be letters, digits, '_', '-' and '.', at most 128 of them, not {name!r:.140}"
        )
    if not isinstance(description, str | None) or not isinstance(parameters, dict | None):
        raise ConfigError(f"tools[{place}]: the description must be text, and parameters a JSON schema")
    return Tool(
        name,
        description or "",
        parameters or dict(NO_PARAMETERS),
        function.get("strict", given.get("strict")) is True,
    )
