"""One turn of a model: the prompt of a conversation, sampling parameters and output parsing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from specdec import ConfigError, SamplingParams
from specdec_server.message import MessageParser
from specdec_server.reasoning import ReasoningParser
from specdec_server.service import Service
from specdec_server.tools import Tool, ToolParser
from specdec_server.tools.choice import ToolChoice
from specdec_server.tools.constraint import constrained
from specdec_server.tools.conversation import for_template, supports_tools
from specdec_server.tools.hermes import HermesParser
from specdec_server.tools.json_list import JsonListParser
from specdec_server.tools.parser import OutputParser
from specdec_server.tools.registry import inferred


@dataclass(frozen=True)
class TurnRequest:
    """Parameters of one turn."""

    messages: Sequence[Mapping[str, Any]]
    """Messages, with the content of each as one text."""
    choice: ToolChoice
    params: SamplingParams
    template_arguments: Mapping[str, Any]
    """Options of `AsyncLLM.chat`, without the tools."""
    reasoning_effort: str | None = None
    shows_reasoning: bool = True


class Turn:
    """A prepared turn.

    Args:
        request: parameters of the turn.
        service: the served engine.

    Raises:
        ConfigError: for options that the model or its chat template does not support.
    """

    def __init__(self, request: TurnRequest, service: Service) -> None:
        self._request, self._choice = request, request.choice
        tokenizer = service.tokenizer
        template = template_of(tokenizer, self._choice.tools)
        self._defaults = service.settings.chat_template_kwargs
        self._tool_parser = self._parser_of(service.settings.tool_parser, template)
        self._reasoning_parser = service.settings.reasoning_parser
        messages = for_template(request.messages, self._choice.tools, template)
        self.prompt = service.llm.chat_prompt(messages, **self._arguments(template))
        self.params = self._params(tokenizer, template)

    @property
    def choice(self) -> ToolChoice:
        """The tools that the model may call."""
        return self._choice

    def parser(self) -> MessageParser:
        """Return a parser for one sample."""
        tools = (
            self._tool_parser(self._choice.allowed) if self._tool_parser and self._uses_tool_parser else None
        )
        return MessageParser(
            self._reasoning(),
            tools,
            max_calls=self._choice.max_calls,
            shows_reasoning=self._request.shows_reasoning,
            shows_content=not self._choice.is_forced,
        )

    def finish_reason(self, reason: str | None, num_calls: int) -> str | None:
        """Return OpenAI's finish reason of a sample; a call forced by name does not change it to `tool_calls`."""
        return "tool_calls" if reason == "stop" and num_calls and self._choice.mode != "named" else reason

    def _reasoning(self) -> ReasoningParser | None:
        return None if self._reasoning_parser is None else self._reasoning_parser(str(self.prompt["prompt"]))

    def _parser_of(self, given: type[ToolParser] | None, template: str) -> type[ToolParser] | None:
        parser = given or inferred(template)
        if not self._choice.allowed:
            return parser
        if parser is None and not supports_tools(template):
            parser = HermesParser  # the format that the system message describes
        if self._choice.is_forced and (parser is None or parser.syntax(template) is None):
            return JsonListParser
        if parser is None:
            raise ConfigError(
                "tools: the chat template does not tell how the model writes calls: start the server with --tool-call-parser, "
                "or set tool_choice to 'required' or to a function"
            )
        return parser

    def _arguments(self, template: str) -> dict[str, Any]:
        arguments = dict(self._request.template_arguments)
        variables = arguments["chat_template_kwargs"] = dict(arguments["chat_template_kwargs"] or {})
        if self._choice.tools and supports_tools(template):
            arguments["tools"] = [tool.as_template() for tool in self._choice.tools]
        effort = self._request.reasoning_effort
        if effort is None:
            pass
        elif "reasoning_effort" in template:
            variables.setdefault("reasoning_effort", effort)
        elif "enable_thinking" in template:
            variables.setdefault("enable_thinking", effort not in ("none", "minimal"))
        elif "thinking" in template:
            variables.setdefault("thinking", effort not in ("none", "minimal"))
        elif effort != "none":
            raise ConfigError(
                f"reasoning_effort = {effort!r}: the chat template of this model has no such setting: leave it out"
            )
        for name, value in self._defaults.items():
            variables.setdefault(name, value)
        return arguments

    def _params(self, tokenizer: PreTrainedTokenizerBase, template: str) -> SamplingParams:
        update: dict[str, Any] = {}
        if any(self._needs_special_tokens(parser, tokenizer) for parser in self._parsers_in_use()):
            update["skip_special_tokens"] = False
        wanted = constrained(
            self._request.params.structured_outputs,
            self._choice,
            None if self._tool_parser is None else self._tool_parser.syntax(template),
            self._prefix(),
        )
        if wanted is not self._request.params.structured_outputs:
            update["structured_outputs"] = wanted
        return self._request.params.model_copy(update=update) if update else self._request.params

    @property
    def _uses_tool_parser(self) -> bool:
        return self._tool_parser is not None and bool(
            self._choice.allowed or self._tool_parser.handles_reasoning
        )

    def _parsers_in_use(self) -> list[type[OutputParser]]:
        found: list[type[OutputParser]] = [] if self._reasoning_parser is None else [self._reasoning_parser]
        return [*found, self._tool_parser] if self._tool_parser and self._uses_tool_parser else found

    @staticmethod
    def _needs_special_tokens(parser: type[OutputParser], tokenizer: PreTrainedTokenizerBase) -> bool:
        marks = getattr(parser, "template_marks", ())
        return parser.needs_special_tokens or bool(set(marks) & set(tokenizer.all_special_tokens))

    def _prefix(self) -> dict[str, Any] | None:
        parser = self._reasoning()
        return None if parser is None else parser.prefix()


def template_of(tokenizer: PreTrainedTokenizerBase, tools: Sequence[Tool] = ()) -> str:
    """Return the chat template for a conversation; empty without one."""
    if tokenizer.chat_template is None:
        return ""
    return str(tokenizer.get_chat_template(tools=[tool.as_template() for tool in tools] or None))
