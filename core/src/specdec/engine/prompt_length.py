"""Prompts that are too long are refused by their characters, before they are tokenized."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from specdec.errors import ConfigError

_MIN_CHARS_PER_TOKEN = 16


class PromptLength:
    """The most characters that a prompt may have.

    Args:
        tokenizer: of the target.
        max_model_len: the most tokens of prompt and output.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_model_len: int) -> None:
        longest = max(map(len, tokenizer.get_vocab()), default=1)
        self._per_token = max(longest, _MIN_CHARS_PER_TOKEN)
        self._max_model_len = max_model_len

    def check(self, text: str) -> None:
        """Check a text, of which every token stands for at most as many characters as the longest in the vocabulary.

        Raises:
            ConfigError: if it cannot fit.
        """
        limit = self._per_token * self._max_model_len
        if len(text) > limit:
            raise ConfigError(
                f"the prompt has {len(text)} characters and max_model_len is {self._max_model_len} tokens, which hold at most "
                f"{limit}: shorten it or set truncate_prompt_tokens"
            )
