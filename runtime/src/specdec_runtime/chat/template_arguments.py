"""The arguments of a chat template: options of a conversation's prompt, and variables that the template reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from inspect import signature
from typing import Any

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from transformers import PreTrainedTokenizerBase

from specdec import ConfigError
from specdec.interfaces import ChatOptions
from specdec.messages import did_you_mean

_FORMATS = ("auto", "string", "openai")
_RESERVED = frozenset(signature(PreTrainedTokenizerBase.apply_chat_template).parameters) - {"documents"}
_GLOBALS = frozenset({"messages", "raise_exception", "strftime_now"})
"""Names that `transformers` gives to every template."""


def template_arguments(
    tokenizer: PreTrainedTokenizerBase, given: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """Return the arguments of `apply_chat_template` and the format of content.

    Args:
        tokenizer: the target's tokenizer.
        given: `ChatOptions`; other names are variables of the template, as in `chat_template_kwargs`.

    Raises:
        ConfigError: for a wrong option, and for one or a variable that would have no effect.
    """
    options: Any = {"chat_template_content_format": "auto", "continue_final_message": False, **given}
    form, variables = options.pop("chat_template_content_format"), options.pop("chat_template_kwargs", None)
    if form not in _FORMATS:
        raise ConfigError(f"chat_template_content_format = {form!r} must be 'auto', 'string' or 'openai'")
    if not isinstance(variables, Mapping | None):
        raise ConfigError(
            f"chat_template_kwargs = {variables!r} must be a mapping from variables of the chat template to values"
        )
    if options.get("add_generation_prompt") is None:
        options["add_generation_prompt"] = not options["continue_final_message"]
    if options["add_generation_prompt"] and options["continue_final_message"]:
        raise ConfigError(
            "add_generation_prompt and continue_final_message are both true: a prompt begins a message or continues one"
        )
    others = set(options) - set(ChatOptions.__annotations__)
    if others or variables or options.get("tools"):
        known = _variables(tokenizer, options)
        if options.get("tools") and "tools" not in known:
            raise ConfigError("tools: the chat template does not read them: describe them in a message")
        _check_variables("chat", others, known, ChatOptions.__annotations__)
        _check_variables("chat_template_kwargs", set(variables or ()), known)
    return options | dict(variables or {}), form


def _check_variables(
    origin: str, names: set[Any], known: frozenset[str], options: Iterable[str] = ()
) -> None:
    usable = known - _RESERVED
    for name in sorted(names - usable, key=str):
        raise ConfigError(
            f"{origin}: {name!r} is not a template variable{did_you_mean(str(name), usable.union(options))} "
            f"The chat template reads: {', '.join(sorted(usable)) or 'none'}"
        )


def _variables(tokenizer: PreTrainedTokenizerBase, options: Mapping[str, Any]) -> frozenset[str]:
    try:
        template = tokenizer.get_chat_template(options.get("chat_template"), options.get("tools"))
        return template_variables(template)
    except (TemplateError, TypeError, ValueError) as error:
        raise ConfigError(f"the chat template cannot be read: {error}") from None


@lru_cache(8)
def template_variables(template: str) -> frozenset[str]:
    """Return the names that a chat template reads and does not set itself.

    Raises:
        jinja2.TemplateError: if it is not a template.
    """
    environment = Environment(extensions=["jinja2.ext.loopcontrols", _Generation])
    return frozenset(find_undeclared_variables(environment.parse(template))) - _GLOBALS


class _Generation(Extension):
    """The tag with which `transformers` marks the text of assistants."""

    tags = {"generation"}  # noqa: RUF012  as the base class declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the statements inside the tag."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
