"""Conversations as prompts: part `chat_templates` of specdec."""

from specdec_runtime.chat.conversation import TokenizerTemplates, conversation_prompt
from specdec_runtime.chat.message_content import as_text, checked_message

__all__ = ["TokenizerTemplates", "as_text", "checked_message", "conversation_prompt"]
