"""What callers give: prompts and conversations, checked and turned into token ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec.faces import lazily

if TYPE_CHECKING:
    from specdec.inputs.conversation import conversation_prompt
    from specdec.inputs.message_content import as_text, checked_message
    from specdec.inputs.prompts import Prompt

__all__ = ["Prompt", "as_text", "checked_message", "conversation_prompt"]

__getattr__ = lazily(
    __name__,
    {
        "conversation": "conversation_prompt",
        "message_content": "as_text checked_message",
        "prompts": "Prompt",
    },
)
