"""A request for the next message of a conversation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import MaxLen
from pydantic import Field

from specdec import ConfigError, SamplingParams
from specdec_runtime.chat import as_text, checked_message
from specdec_server.protocol.checks import MAX_MESSAGES, ListOf
from specdec_server.protocol.generation import GenerationRequest
from specdec_server.tools.choice import ToolChoice, tool_choice_of


class ChatRequest(GenerationRequest):
    """The body of `POST /v1/chat/completions`."""

    messages: Annotated[ListOf[dict[str, Any]], MaxLen(MAX_MESSAGES)]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    """Continue the last message instead of starting a new one."""
    chat_template_kwargs: dict[str, Any] | None = None
    tools: ListOf[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = Field(None, max_length=32)
    include_reasoning: bool | None = None
    """Whether to return reasoning; default: yes."""
    modalities: list[Literal["text"]] | None = None

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """The messages, with the content of each as one text.

        Raises:
            ConfigError: if there is none, or one is not a text message.
        """
        return text_messages(self.messages)

    @property
    def choice(self) -> ToolChoice:
        """The tools that the model may call.

        Raises:
            ConfigError: naming what is wrong with them.
        """
        return tool_choice_of(self.tools, self.tool_choice, self.parallel_tool_calls)

    @property
    def template_arguments(self) -> dict[str, Any]:
        """Options of `AsyncLLM.chat`, without the tools. A request must not supply its own template, which is a program."""
        return {
            "add_generation_prompt": self.add_generation_prompt,
            "continue_final_message": bool(self.continue_final_message),
            "chat_template_kwargs": self.chat_template_kwargs,
        }

    def to_sampling_params(self, max_logprobs: int) -> SamplingParams:
        """Return the sampling parameters.

        Raises:
            ConfigError: naming the one that is wrong.
        """
        if self.top_logprobs is not None and not self.logprobs:
            raise ConfigError("top_logprobs needs logprobs to be true")
        limits = {limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None}
        if len(limits) > 1:
            raise ConfigError(
                f"max_tokens = {self.max_tokens} and max_completion_tokens = {self.max_completion_tokens} are two names of one "
                "limit: give one of them"
            )
        return self.sampling_params(
            max_tokens=next(iter(limits), None),
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            prompt_logprobs=self.prompt_logprobs,
            max_logprobs=max_logprobs,
        )


def text_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with the content of each as one text.

    Raises:
        ConfigError: if there is none, or one is not a text message.
    """
    if not messages:
        raise ConfigError("messages is empty: give at least one")
    return [as_text(checked_message(message, f"messages[{i}]")) for i, message in enumerate(messages)]
