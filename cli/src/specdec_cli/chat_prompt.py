"""Conversations as prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specdec_cli.extras import check_extra

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def chat_prompt(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a conversation as the model's chat template writes it: its text and token ids.

    Args:
        tokenizer: the target's.
        messages: each with `role` and `content`.

    Raises:
        ConfigError: if chat templates are not installed, or the template rejects the messages.
    """
    check_extra("models", "a conversation")
    from specdec_runtime.chat import conversation_prompt

    return conversation_prompt(tokenizer, messages, {})
