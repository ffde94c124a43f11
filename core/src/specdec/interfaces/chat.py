"""Conversations: what a package that applies chat templates does for core."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from specdec.interfaces.part import Part

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ContentFormat = Literal["auto", "string", "openai"]


class ChatOptions(TypedDict, total=False):
    """Options of a conversation's prompt, with the names and meanings of vLLM's `LLM.chat`."""

    chat_template: str | None
    """A Jinja template, or the name of one of the tokenizer's; None for the tokenizer's own."""
    chat_template_content_format: ContentFormat
    """What the template reads content as: text (`string`) or a list of parts (`openai`); `auto` finds out."""
    add_generation_prompt: bool | None
    """Whether the prompt ends where a new message begins; None: unless `continue_final_message`."""
    continue_final_message: bool
    """Whether the last message is continued."""
    tools: list[dict[str, Any]] | None
    """Functions that the model may call, as JSON schemas."""
    chat_template_kwargs: Mapping[str, Any] | None
    """Variables of the template, such as `enable_thinking`."""


class ChatTemplates(Part):
    """Part `chat_templates`: makes prompts of conversations."""

    @abstractmethod
    def prompt(
        self,
        tokenizer: PreTrainedTokenizerBase,
        messages: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
        check_length: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Return a conversation as `prompt` (the text) and `prompt_token_ids`.

        Args:
            tokenizer: the target's tokenizer.
            messages: each with `role` and `content`.
            options: `ChatOptions`; other names are variables of the template, as in `chat_template_kwargs`.
            check_length: called with the text before it is tokenized; raises if it is too long.

        Raises:
            ConfigError: if there is no chat template, the template rejects the messages, or they are too long; for content
                that is not text, and for options that would have no effect.
        """
