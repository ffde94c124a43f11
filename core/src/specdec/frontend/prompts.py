"""Prompts and conversations in the forms that callers give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from specdec.errors import ConfigError, ContextLengthError
from specdec.text.unicode import check_unicode

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["Prompt"]

Prompt = str | list[int] | Mapping[str, Any]
"""Text, token ids, or `{"prompt_token_ids": [...]}`, which may have a `cache_salt`: only prompts with the same one share
cached prefixes. Arrays and tensors of ids work as well."""

_KEYS = ("prompt", "prompt_token_ids", "cache_salt")
_MIN_CHARS_PER_TOKEN = 16
_MOST_SALT = 128


def as_prompts(given: object) -> list[Prompt]:
    """Return a list of prompts for one or many; a flat list of ids is one prompt.

    Raises:
        ConfigError: if it is neither.
    """
    if isinstance(given, str | Mapping):
        return [given]
    given = _as_list(given)
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise _no_prompt(given)
    many = list(given)
    return [many] if many and all(isinstance(item, Integral) for item in many) else many


def text_and_ids(prompt: object) -> tuple[str | None, list[int] | None]:
    """Return the text and the token ids of a prompt; None for what is not given.

    Raises:
        ConfigError: if it is not a prompt.
    """
    if isinstance(prompt, str):
        check_unicode(prompt, "the prompt")
        return prompt, None
    if not isinstance(prompt, Mapping):
        return None, _ids(prompt)
    unknown = sorted(map(str, set(prompt) - set(_KEYS)))
    text, ids, _ = (prompt.get(key) for key in _KEYS)
    if unknown or (text is None and ids is None):
        raise ConfigError(
            f"a prompt mapping needs 'prompt_token_ids' or 'prompt', not {unknown or 'nothing'}"
        )
    if not isinstance(text, str | None):
        raise ConfigError(f"'prompt' in a prompt mapping must be text, not {type(text).__name__}")
    check_unicode(text or "", "the prompt")
    return text, None if ids is None else _ids(ids)


def salt_of(prompt: object) -> str:
    """Return the `cache_salt` of a prompt; empty without one.

    Raises:
        ConfigError: if it is not a text of 1 to 128 characters without @, /, backslash or NUL, as in vLLM.
    """
    salt = prompt.get("cache_salt") if isinstance(prompt, Mapping) else None
    if salt is None:
        return ""
    if not isinstance(salt, str) or not 0 < len(salt) <= _MOST_SALT or set(salt) & set("@/\\\0"):
        raise ConfigError(
            f"'cache_salt' = {salt!r:.200} must be a text of 1 to {_MOST_SALT} characters without '@', '/', '\\\\' and NUL"
        )
    check_unicode(salt, "'cache_salt'")
    return salt


def as_conversations(messages: object) -> Sequence[Any]:
    """Return the conversations of one list of messages, or of several.

    Raises:
        ConfigError: if it is neither.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise ConfigError(
            f"messages must be a list of messages or of such lists, not {type(messages).__name__}: {messages!r}"
        )
    return [messages] if messages and isinstance(messages[0], Mapping) else messages


@contextmanager
def numbered(what: str, index: int, count: int) -> Iterator[None]:
    """Begin the errors about one of several prompts or conversations with its index."""
    try:
        yield
    except ConfigError as error:
        if count == 1:
            raise
        raise type(error)(f"{what}[{index}]: {error}") from None


class PromptLength:
    """Maximum number of characters of a prompt, which is refused before it is tokenized.

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


def _ids(given: object) -> list[int]:
    given = _as_list(given)
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise _no_prompt(given)
    wrong = [kind for kind in set(map(type, given)) if kind is bool or not issubclass(kind, Integral)]
    if wrong:
        item = next(item for item in given if type(item) in wrong)
        raise ConfigError(f"a prompt's token ids must be integers, not {item!r}")
    return [int(token_id) for token_id in given]


def _as_list(given: object) -> object:
    """Return an array or a tensor as nested lists, and anything else as it is."""
    import torch  # by now it is imported

    return given.tolist() if isinstance(given, np.ndarray | torch.Tensor) else given


def _no_prompt(given: object) -> ConfigError:
    return ConfigError(
        f"a prompt must be text, a list of token ids or {{'prompt_token_ids': [...]}}, not {type(given).__name__}"
    )
