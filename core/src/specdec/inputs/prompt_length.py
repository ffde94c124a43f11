"""Refuses prompts with too many characters before they are tokenized."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from specdec.errors import ContextLengthError

_MIN_CHARS_PER_TOKEN = 16


class PromptLength:
    """Maximum number of characters of a prompt.

    Args:
        tokenizer: the target's tokenizer.
        max_model_len: maximum number of tokens of prompt and output.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_model_len: int) -> None:
        longest = max(map(len, tokenizer.get_vocab()), default=1)
        self._max_model_len = max_model_len
        self.most_chars = max(longest, _MIN_CHARS_PER_TOKEN) * max_model_len

    def check(self, text: str) -> None:
        """Check a text: a token has at most as many characters as the longest one of the vocabulary.

        Raises:
            ContextLengthError: if it cannot fit.
        """
        if len(text) > self.most_chars:
            raise ContextLengthError(
                f"the prompt has {len(text)} characters and max_model_len is {self._max_model_len} tokens, which hold at most "
                f"{self.most_chars}: shorten it or set truncate_prompt_tokens"
            )
